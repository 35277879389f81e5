"""A rank that dies in the middle of a step: every surviving rank gets an error in time, and no wrong result."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = """
import json, os, sys, time
from datetime import timedelta
sys.path.insert(0, {here!r})
import torch, torch.distributed as dist
rank, size, store, codec = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
limit = timedelta(seconds=20)
dist.init_process_group("gloo", f"file://{{store}}", limit, size, rank)
from models import batch, sgd, train, weights, wrap
model = wrap(None, codec, timeout=limit)
optimizer = sgd(model)
train(model, optimizer, range(3), rank)
before = weights(model)
x, y = batch(rank, 3)
loss = torch.nn.functional.cross_entropy(model(x), y)
if rank == 1:
    os._exit(17)
start = time.monotonic()
try:
    loss.backward()
except Exception as error:
    same = bool(torch.equal(before, weights(model)))
    print(json.dumps({{"error": type(error).__name__, "text": str(error), "same": same,
                       "seconds": time.monotonic() - start}}), flush=True)
os._exit(0)
"""


def test_survivors_are_told(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT.format(here=str(HERE)))
    store = str(tmp_path / "store")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), "3", store, "nuqsgd"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(3)
    ]
    deadline = time.monotonic() + 90
    outputs = [process.communicate(timeout=max(1, deadline - time.monotonic()))[0] for process in ranks]
    assert ranks[1].returncode == 17
    for rank in (0, 2):
        told = json.loads(outputs[rank])
        assert told["error"] == "ExchangeFailed"
        assert f"on rank {rank} of 3: another rank stopped, or did not answer in time" in told["text"]
        assert told["same"]
