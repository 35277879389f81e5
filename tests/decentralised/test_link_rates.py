"""An emulated network in which one host has a slower link than the others."""

import shutil
import subprocess

import pytest

from laconic.exchange.emulated_network import available, emulated_network

reason = available()
needs_network = pytest.mark.skipif(reason is not None, reason=f"an emulated network {reason}")


@needs_network
def test_one_host_may_have_a_slower_link():
    with emulated_network(3, ["1gbit", "1gbit", "10mbit"]) as hosts:
        for host, rate in zip(hosts, ("1Gbit", "1Gbit", "10Mbit"), strict=True):
            command = [shutil.which("tc"), "-n", host.namespace, "qdisc"]
            assert f"rate {rate}" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_link_that_cannot_be_is_told():
    said = "such as 1gbit, 100mbit or 20mbit, got 'slow'"
    with pytest.raises(ValueError, match=said), emulated_network(3, ["1gbit", "slow", "1gbit"]):
        pass
