"""A slow network on one machine: a Linux network namespace for each host, all joined by a bridge, every link limited.

    host 0 (namespace)                 switch (namespace)                host 1 (namespace)
    eth0 10.77.0.1  ── veth pair ──  port0 ── bridge ── port1  ── veth pair ──  eth0 10.77.0.2
        tbf: up                      tbf: down   tbf: down                      tbf: up

Each link is held to the rate in both directions by a token bucket filter (`tc qdisc ... tbf`). Nothing outside the
namespaces is touched, so removing the namespaces removes everything. Needs root and iproute2.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType

from laconic.errors import LaconicError
from laconic.exchange.launch import Host

MAX_HOSTS = 250
INTERFACE = "eth0"
BURST_SECONDS, LEAST_BURST = 1e-3, 20_000
"""Size of the token bucket: a timer tick's traffic, and at least a few packets. A larger one would not limit short
messages."""
LEAST_SEGMENT, MOST_SEGMENT = 16_384, 65_536
"""Bytes that TCP hands to a link at once. If they exceeded the burst, the filter would split them into packets, on the
cores that the ranks need."""
QUEUE_SECONDS, LEAST_QUEUE = 0.05, 2**20
"""Length of a link's queue, beyond which packets are dropped: enough for all hosts to send to one at once."""
_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_NAME = re.compile(r"laconic-(\d+)-\d+-\w+")
_serial = count()


class NetworkUnavailable(LaconicError):
    """An emulated network was requested, but cannot be set up here."""


def bits_per_second(rate: str) -> int:
    """Parse a rate in the notation of `tc`, from 100kbit to 100gbit.

    >>> bits_per_second("1gbit"), bits_per_second("2.5mbit")
    (1000000000, 2500000)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([kmg])bit", rate.strip().lower(), re.ASCII)
    value = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 10**5 <= value <= 10**11:
        raise ValueError(f"expected a rate from 100kbit to 100gbit, such as 1gbit, 100mbit or 20mbit, got {rate!r}")
    return value


def available() -> str | None:
    """None where networks can be emulated, otherwise the reason why not."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "needs iproute2 (ip, tc)"
    probe = _names(0)[0]
    try:
        _run("ip", "netns", "add", probe)
    except NetworkUnavailable:
        return "the kernel refuses network namespaces"
    finally:
        _remove([probe])
    return None


@contextmanager
def emulated_network(n_hosts: int, rate: str | Sequence[str] | None) -> Iterator[list[Host]]:
    """Hosts to start ranks on, each on a link of `rate`; with rate None, processes on this machine over loopback.

    rate  of all links, or one per host

    Everything is removed at the end, also after an error, Ctrl-C or SIGTERM. What a killed run has left behind is
    removed by the next run.
    """
    if not 1 <= n_hosts <= MAX_HOSTS:
        raise ValueError(f"a network has 1 to {MAX_HOSTS} hosts, got {n_hosts}")
    if rate is None:
        yield [Host()] * n_hosts
        return
    bits = [bits_per_second(one) for one in ([rate] * n_hosts if isinstance(rate, str) else rate)]
    reason = available()
    if reason is not None:
        raise NetworkUnavailable(f"an emulated network {reason}; without --rate the ranks talk over loopback")
    _remove(left_over())
    switch, *names = _names(n_hosts)
    hosts = [Host(f"10.77.0.{i}", INTERFACE, name) for i, name in enumerate(names, start=1)]
    with _terminate_as_exit():
        try:
            _build(switch, hosts, bits)
            yield hosts
        finally:
            _remove([switch, *names])


def left_over() -> list[str]:
    """Namespaces made by this module whose process has ended."""
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.split()]
    owners = {name: match[1] for name in names if (match := _NAME.fullmatch(name))}
    return [name for name, pid in owners.items() if not Path("/proc", pid).exists()]


def _names(n_hosts: int) -> list[str]:
    """Names for the namespaces of the switch and the hosts, unique to one network on this machine."""
    run = f"laconic-{os.getpid()}-{next(_serial)}"
    return [f"{run}-switch", *(f"{run}-{i}" for i in range(n_hosts))]


def _burst(rate: int) -> int:
    return max(LEAST_BURST, int(rate / 8 * BURST_SECONDS))


def _limit(rate: int) -> list[str]:
    """The `tc` arguments of a token bucket filter, with a burst and a queue that let it reach its rate."""
    burst = _burst(rate)
    queue = max(LEAST_QUEUE, int(rate / 8 * QUEUE_SECONDS)) + burst
    return ["root", "tbf", "rate", f"{rate}bit", "burst", str(burst), "limit", str(queue)]


def _build(switch: str, hosts: Sequence[Host], rates: Sequence[int]) -> None:
    """1. the switch with its bridge; 2. each host with its link; 3. the limits at both ends of each link."""
    _run("ip", "netns", "add", switch)
    _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", switch, "link", "set", "bridge", "up")
    segment = str(min(MOST_SEGMENT, max(LEAST_SEGMENT, _burst(min(rates)) // 2)))  # fits every link's burst
    for i, (host, rate) in enumerate(zip(hosts, rates, strict=True)):
        port, name, limit = f"port{i}", str(host.namespace), _limit(rate)
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", name)
        _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
        _run("ip", "-n", name, "link", "set", INTERFACE, "gso_max_size", segment, "up")
        _run("tc", "-n", name, "qdisc", "add", "dev", INTERFACE, *limit)
        _run("tc", "-n", switch, "qdisc", "add", "dev", port, *limit)


def _remove(names: Sequence[str]) -> None:
    """Remove namespaces and all that is in them, with signals blocked; those that do not exist are skipped."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        for name in names:
            if Path("/run/netns", name).exists() or Path("/var/run/netns", name).exists():
                _run("ip", "netns", "delete", name, check=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _terminate_as_exit() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `SystemExit` in this block, so that clean-up runs; no effect outside the main thread.

    Signals that are ignored, as under nohup, or have a handler are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _run(program: str, *arguments: str, check: bool = True) -> str:
    path = shutil.which(program) or program
    done = subprocess.run(  # noqa: S603 (a list of our own arguments, no shell)
        [path, *arguments], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise NetworkUnavailable(f"cannot set up the emulated network: {program} {' '.join(arguments)}: {reason}")
    return done.stdout
