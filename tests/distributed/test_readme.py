"""The README's one-line example runs as written under torchrun, whose ranks have seeds of hashes of their own."""

import ast
import re
from pathlib import Path

from forking import torchrun

README = Path(__file__).parents[2] / "README.md"


def test_under_torchrun(tmp_path):
    script = re.search(r'```python title="train.py"\n(.*?)```', README.read_text(), flags=re.DOTALL)
    (tmp_path / "train.py").write_text(script.group(1))
    run = torchrun(tmp_path / "train.py", tmp_path, 2)
    assert run.returncode == 0, run.stderr
    stats = ast.literal_eval(run.stdout.strip().splitlines()[-1])
    assert stats["steps"] == 20
    assert stats["ratio"] > 5
