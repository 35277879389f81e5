"""Sharded training over NCCL, several ranks on one GPU: a visible skip where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import fsdp_checks
import pytest
import torch
from pool import shared_gpu

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ONE_GPU = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
CASES = [(size, name) for size in (2, 4) for name in fsdp_checks.checks("nccl", size)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcome of every check, by number of ranks, of which each believes to have a host of its own."""
    script = Path(__file__).with_name("fsdp_checks.py")
    stores = {size: tmp_path_factory.mktemp("fsdp") / "store" for size in (2, 4)}
    with shared_gpu() as environment:
        ranks = {
            (size, rank): subprocess.Popen(
                [sys.executable, str(script), "nccl", str(store), str(rank), str(size)],
                env={**os.environ, **ONE_GPU, **environment, "NCCL_HOSTID": f"{size}.{rank}"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for size, store in stores.items()
            for rank in range(size)
        }
        said = {key: rank.communicate()[0].splitlines() for key, rank in ranks.items()}
    lines = [(size, *line.split("\t", 1)) for (size, _), texts in said.items() for line in texts if "\t" in line]
    return {size: {name: outcome for of, name, outcome in reversed(lines) if of == size} for size in stores}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("size", "name"), CASES, ids=lambda value: str(value))
def test_over_nccl(size, name, outcomes):
    assert outcomes[size].get(name, "its process ended before it") == "ok"
