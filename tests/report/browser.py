"""A headless Chromium, spoken to over a pipe: one JSON message after another, each ended by a zero byte."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-sync", "--disable-component-update", "--disable-default-apps", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
]
START = """\
import os, sys
reads, writes = (os.dup2(int(end), high) for end, high in zip(sys.argv[1:3], (100, 101)))
os.dup2(reads, 3), os.dup2(writes, 4), os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium expects its pipe at 3 and 4; either may be the other end's number here, hence the way over 100."""
SECONDS = 60.0


class Browser:
    """One page of a browser. `complaints` is what its console said, and requests that it made."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in, self._buffer, self._id = to_browser, from_browser, b"", 0
        self._session: str | None = None
        self._loaded = False
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params):
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._id:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            assert select.select([self._in], [], [], SECONDS)[0], "the browser does not answer"
            read = os.read(self._in, 1 << 16)
            assert read, "the browser has gone"
            self._buffer += read
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _note(self, event: dict) -> None:
        params = event.get("params", {})
        self._loaded |= event.get("method") == "Page.loadEventFired"
        if event.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(params)[:500])
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path, width: int = 1280, dark: bool = False, height: int = 900, scripts: bool = True) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._note(self._read())
        if scripts:
            self.settle()

    def settle(self) -> None:
        """Until what a change of layout draws is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def run(self, code: str):
        """The value of an expression on the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser():
    """A browser with a profile of its own, gone afterwards."""
    assert CHROMIUM is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    ends = (to_browser[0], from_browser[1])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, ends), CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for end in ends:
            os.close(end)
        try:
            yield Browser(to_browser[1], from_browser[0])
        finally:
            os.close(to_browser[1])
            os.close(from_browser[0])
            process.kill()
            process.wait(30)
