"""An emulated network in which one host has a slower link than the others."""

import shutil
import subprocess

import pytest

from laconic.bench.network import available, emulated_network

reason = available()
needs_network = pytest.mark.skipif(reason is not None, reason=f"an emulated network {reason}")


@needs_network
def test_one_host_may_have_a_slower_link():
    with emulated_network(3, "1gbit", rates={2: "10mbit"}) as hosts:
        for host, rate in zip(hosts, ("1Gbit", "1Gbit", "10Mbit"), strict=True):
            command = [shutil.which("tc"), "-n", host.namespace, "qdisc"]
            assert f"rate {rate}" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("rate", "rates", "said"),
    [
        (None, {0: "10mbit"}, "a slow link needs a network to be on"),
        ("1gbit", {3: "10mbit"}, "hosts are numbered from 0 to 2, got a rate for host 3"),
        ("1gbit", {0: "slow"}, "such as 1gbit, 100mbit or 20mbit, got 'slow'"),
    ],
)
def test_links_that_cannot_be_are_told(rate, rates, said):
    with pytest.raises(ValueError, match=said), emulated_network(3, rate, rates=rates):
        pass
