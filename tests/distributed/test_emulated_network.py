"""The emulated network: it is what it says, and nothing of it is left behind."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from laconic.exchange import emulated_network as network
from laconic.exchange.emulated_network import NetworkUnavailable, available, bits_per_second, emulated_network

IP, TC = shutil.which("ip"), shutil.which("tc")
reason = available()
needs_network = pytest.mark.skipif(reason is not None, reason=f"an emulated network {reason}")


def ours(pid: int | None = None) -> list[str]:
    listed = subprocess.run([IP, "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(f"laconic-{pid or os.getpid()}-")]


@pytest.mark.parametrize(
    ("rate", "expected"), [("1gbit", 10**9), ("100mbit", 10**8), (" 20Mbit ", 2 * 10**7), ("1.5kbit", None)]
)
def test_rates(rate, expected):
    if expected is None:
        with pytest.raises(ValueError, match="from 100kbit to 100gbit"):
            bits_per_second(rate)
    else:
        assert bits_per_second(rate) == expected


@pytest.mark.parametrize("rate", ["", "fast", "1", "1gbps", "-1gbit", "0mbit", "1e9bit", "1000gbit", "١gbit"])
def test_bad_rates_are_told(rate):
    with pytest.raises(ValueError, match="such as 1gbit, 100mbit or 20mbit, got"):
        bits_per_second(rate)


@pytest.mark.parametrize("n_hosts", [0, -1, 251])
def test_bad_numbers_of_hosts_are_told(n_hosts):
    with pytest.raises(ValueError, match="1 to 250 hosts"), emulated_network(n_hosts, None):
        pass


def test_unlimited_is_loopback():
    with emulated_network(3, None) as hosts:
        assert [(h.address, h.interface, h.namespace, h.command) for h in hosts] == [("127.0.0.1", "lo", None, [])] * 3


def test_reasons(monkeypatch):
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    assert available() == "needs root"
    with pytest.raises(NetworkUnavailable, match="an emulated network needs root"), emulated_network(2, "1gbit"):
        pass
    monkeypatch.setattr(network.os, "geteuid", lambda: 0)
    monkeypatch.setattr(network.shutil, "which", lambda name: None)
    assert available() == "needs iproute2 (ip, tc)"


@needs_network
def test_hosts_reach_each_other_over_limited_links():
    with emulated_network(2, "100mbit") as hosts:
        assert [h.address for h in hosts] == ["10.77.0.1", "10.77.0.2"]
        assert len(ours()) == 3
        for host in hosts:
            shown = subprocess.run([TC, "-n", host.namespace, "qdisc"], capture_output=True, text=True, check=True)
            assert "tbf" in shown.stdout
            assert "rate 100Mbit" in shown.stdout
        listen = "import socket; s = socket.create_server(('10.77.0.1', 5000)); print('up', flush=True); s.accept()"
        server = subprocess.Popen([*hosts[0].command, sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout.readline() == "up\n"
            call = "import socket; socket.create_connection(('10.77.0.1', 5000), 10)"
            subprocess.run([*hosts[1].command, sys.executable, "-c", call], check=True)
            assert server.wait(10) == 0
        finally:
            server.kill()
            server.communicate()
    assert ours() == []


@needs_network
def test_nothing_is_left_after_an_error():
    def fail():
        with emulated_network(2, "1gbit"):
            assert len(ours()) == 3
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert ours() == []


@needs_network
def test_nothing_is_left_when_building_fails(monkeypatch):
    monkeypatch.setattr(network, "_limit", lambda rate: ["root", "no-such-qdisc"])
    with pytest.raises(NetworkUnavailable, match="no-such-qdisc"), emulated_network(2, "1gbit"):
        pass
    assert ours() == []


WAIT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
from laconic.exchange.emulated_network import emulated_network
with emulated_network(2, "1gbit"):
    print("up", flush=True)
    signal.pause()
"""


@needs_network
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(number):
    """After SIGKILL nothing can be done at once; the next network removes what is left."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        assert process.stdout.readline() == "up\n"
        assert len(ours(process.pid)) == 3
        process.send_signal(number)
        assert process.wait() != 0
    if number is signal.SIGKILL:
        assert len(ours(process.pid)) == 3
        with emulated_network(1, "1gbit"):
            pass
    assert ours(process.pid) == []
