"""The README's one-line example runs as written under torchrun, whose ranks have seeds of hashes of their own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_under_torchrun(tmp_path):
    script = re.search(r'```python title="train.py"\n(.*?)```', README.read_text(), flags=re.DOTALL)
    (tmp_path / "train.py").write_text(script.group(1))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr
    stats = ast.literal_eval(run.stdout.strip().splitlines()[-1])
    assert stats["steps"] == 20
    assert stats["ratio"] > 5
