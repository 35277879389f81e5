"""Sharded training over NCCL, several ranks on one GPU: a visible skip where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import fsdp_checks
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ONE_GPU = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
CASES = [(size, name) for size in (2, 4) for name in fsdp_checks.checks("nccl", size)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcome of every check, by number of ranks, of which each believes to have a host of its own."""
    script, found = Path(__file__).with_name("fsdp_checks.py"), {}
    for size in (2, 4):
        store = tmp_path_factory.mktemp("fsdp") / "store"
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), "nccl", str(store), str(rank), str(size)],
                env={**os.environ, **ONE_GPU, "NCCL_HOSTID": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        lines = [line for rank in ranks for line in rank.communicate()[0].splitlines() if "\t" in line]
        found[size] = dict(reversed([line.split("\t", 1) for line in lines]))
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("size", "name"), CASES, ids=lambda value: str(value))
def test_over_nccl(size, name, outcomes):
    assert outcomes[size].get(name, "its process ended before it") == "ok"
