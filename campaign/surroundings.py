"""Bad surroundings: ranks that stall or start late, a port that is in use, a disk that is full or read-only.

Ranks that are only slow must end with the bits of an undisturbed run. What cannot be done must raise a clear error in
time, with existing files unchanged and nothing half-written beside them.
"""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch

import laconic
from campaign.case import Broken, Case, Trial
from campaign.ranks import SCHEMES, ranks, results
from laconic.atomic_write import NotWritten
from laconic.data import convert, read
from laconic.glm.fit import fit_file
from laconic.glm.model import Model
from tests.data.files import dump_csv, small_table
from tests.glm.fits import changed, small_job, write_problem

TRAINED = [(kind, scheme) for kind in ("DDP", "FSDP", "decentralised") for scheme in SCHEMES[kind]]
COMMAND = [sys.executable, "-c", "import sys; from laconic_command import main; sys.exit(main())"]


def on_ranks(disturb: Callable[[list[Any], random.Random], dict[str, Any] | None]) -> Trial:
    """Train on two or three ranks with a disturbance, and compare with the bits of an undisturbed run."""
    whole: dict[tuple[str, str, int], list[Any]] = {}

    def trial(rng: random.Random) -> str:
        (kind, scheme), size = rng.choice(TRAINED), rng.choice((2, 3))
        job = {"kind": kind, "scheme": scheme, "steps": 8, "every": 4}
        key = kind, scheme, size
        if key not in whole:
            with ranks(size, job | {"folder": tempfile.mkdtemp()}) as (started, pipes):
                whole[key] = results(pipes)
        job |= {"folder": tempfile.mkdtemp(), "late": rng.randrange(size), "seconds": 0.0}
        job |= disturb([], rng) or {}
        with ranks(size, job) as (started, pipes):
            disturb(started, rng)
            found = results(pipes)
        if found != whole[key] or any(not isinstance(one, bytes) for one in found):
            raise Broken(f"{key}: {[one if isinstance(one, tuple) else '…' for one in found]}")
        return "the same bits"

    return trial


def late(started: list[Any], rng: random.Random) -> dict[str, Any]:
    """A rank starts seconds after the others."""
    return {"seconds": 3.0 * rng.random()}


def stopped(started: list[Any], rng: random.Random) -> None:
    """A rank is stopped for a while."""
    if started:
        chosen = rng.choice(started)
        time.sleep(2.0 * rng.random())
        os.kill(chosen.pid, signal.SIGSTOP)
        time.sleep(2.0 * rng.random())
        os.kill(chosen.pid, signal.SIGCONT)


def stopped_for_good() -> Trial:
    """A rank stops for longer than the others' timeout: they must end with a clear error."""

    def trial(rng: random.Random) -> str:
        scheme = rng.choice(list(SCHEMES["DDP"]))
        job = {"kind": "DDP", "scheme": scheme, "steps": 10**6, "every": 10**6, "folder": tempfile.mkdtemp()}
        with ranks(2, job | {"limit": timedelta(seconds=8)}) as (started, pipes):
            if [pipe.recv() for pipe in pipes] != ["begun", "begun"]:
                raise Broken("ranks did not begin")
            time.sleep(rng.random())
            os.kill(started[1].pid, signal.SIGSTOP)
            if not pipes[0].poll(120):
                raise Broken(f"{scheme}: a rank waits for another that stands still")
            found = pipes[0].recv()
        if not isinstance(found, tuple) or found[0] != "ExchangeFailed":
            raise Broken(f"{scheme}: {found}")
        return "told"

    return trial


def port_in_use() -> Trial:
    """torchrun's port is in use: the command must end in time, with a one-line error."""
    folder = Path(tempfile.mkdtemp())
    write_problem(folder / "rows.safetensors")

    def trial(rng: random.Random) -> str:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            env = {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(taken.getsockname()[1]),
            }
            return _refused(["fit", str(folder / "rows.safetensors"), "-o", str(folder / "m.safetensors")], env, "port")

    return trial


def _refused(words: list[str], env: dict[str, str], said: str, prefix: list[str] | None = None) -> str:
    """Run a command that must fail: exit status 1 or 2, no traceback, and `said` in its output."""
    command = [*(prefix or []), *COMMAND, *words]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if done.returncode not in (1, 2) or "Traceback" in done.stderr or said not in done.stderr:
        raise Broken(f"exit status {done.returncode}: {done.stdout[-500:]} {done.stderr[-1500:]}")
    return f"exit status {done.returncode}"


def full_disk() -> Trial:
    """Limit the size of files: they must be written whole, or `NotWritten` raised with the old one untouched."""
    folder = Path(tempfile.mkdtemp())
    rows = write_problem(folder / "rows.safetensors")
    table = dump_csv(folder / "rows.csv", small_table())
    model = Model(torch.ones(1, 500), torch.zeros(1), "logistic", ("no", "yes"))
    kept = folder / "kept"

    def checkpointed(path: Path) -> None:
        own = {"checkpoint": str(kept), "checkpoint_every": 0.0, "resume": kept.exists()}
        fit_file(changed(small_job(rows, path), **own))

    writers: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
        "model": (model.save, Model.load),
        "store": (lambda path: convert(table, path, target="label"), read),
        "fit": (checkpointed, Model.load),
    }
    for name, (write, _) in writers.items():
        write(folder / f"{name}.safetensors")

    def trial(rng: random.Random) -> str:
        name = rng.choice(list(writers))
        (write, load), path = writers[name], folder / f"{name}.safetensors"
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (rng.randrange(1, 5000), resource.RLIM_INFINITY))
        outcome = "written"
        try:
            write(path)
        except NotWritten:
            outcome = "refused"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        if outcome == "refused" and path.read_bytes() != before:
            raise Broken(f"{name}: changed, and refused")
        load(path)
        if left := [one.name for one in (*folder.iterdir(), *kept.iterdir()) if one.name.endswith(".tmp")]:
            raise Broken(f"{name}: left {left}")
        return outcome

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return trial


def read_only() -> Trial:
    """Write to a read-only file system, in a mount namespace of its own."""
    folder = Path(tempfile.mkdtemp())
    rows = dump_csv(folder / "rows.csv", small_table())
    fixed = folder / "fixed"
    fixed.mkdir()
    mount = f'mount -t tmpfs none {fixed} && mount -o remount,ro {fixed} && exec "$@"'
    commands = {
        "fit": ["fit", str(rows), "--target", "label", "-o", str(fixed / "m.safetensors")],
        "checkpoint": [
            "fit",
            str(rows),
            "--target",
            "label",
            "--checkpoint",
            str(fixed / "kept"),
            "-o",
            str(folder / "m"),
        ],
        "convert": ["convert", str(rows), str(fixed / "m.safetensors"), "--target", "label"],
    }

    def trial(rng: random.Random) -> str:
        words = commands[rng.choice(list(commands))]
        return _refused(words, {}, str(fixed), ["unshare", "-rm", "sh", "-c", mount, "sh"])

    return trial


def no_cache() -> Trial:
    """Numba has no writable cache folder: the error must say what to set."""
    folder = Path(tempfile.mkdtemp())
    rows = dump_csv(folder / "rows.csv", small_table())
    source = Path(laconic.__file__).parents[1]
    hidden = ["unshare", "-rm", "sh", "-c", f'mount -o bind,ro {source} {source}; exec "$@"', "sh"]
    words = ["fit", str(rows), "--target", "label", "--solver", "sgd", "-o", str(folder / "model.safetensors")]

    def trial(rng: random.Random) -> str:
        where = rng.choice(("/proc/nowhere", str(rows), "/dev/null/kernels"))
        return _refused(
            words, dict.fromkeys(("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME"), where), "NUMBA_CACHE_DIR", hidden
        )

    return trial


def needs_unshare() -> None:
    """Raise `Broken` if this user may not mount file systems."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        raise Broken("needs `unshare`, and the right to mount in a namespace of its own")


CASES = [
    Case("surroundings, stopped rank", 2, 20, partial(on_ranks, stopped), 10),
    Case("surroundings, rank stopped for good", 1, 20, stopped_for_good, 10),
    Case("surroundings, late rank", 2, 20, partial(on_ranks, late), 10),
    Case("surroundings, port in use", 1, 20, port_in_use, 10),
    Case("surroundings, full disk", 20, 400, full_disk, 200),
    Case("surroundings, read-only file system", 2, 20, read_only, 10, needs=needs_unshare),
    Case("surroundings, no folder for kernels", 2, 20, no_cache, 10, needs=needs_unshare),
]
