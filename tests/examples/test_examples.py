"""Every example runs as its docstring says, alone and under torchrun, and prints what it promises."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from forking import TORCHRUN, torchrun

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@dataclass(frozen=True)
class Run:
    """One way to run an example.

    ranks    0: python alone; otherwise torchrun with so many
    prints   regular expressions, of which each must match a line on stdout, in this order
    needs    a package that is no dependency of ours
    crashes  how often the command fails before it succeeds
    restarts how often torchrun may start the ranks again
    """

    file: str
    ranks: int
    prints: tuple[str, ...]
    needs: str | None = None
    crashes: int = 0
    restarts: int = 0


LOSSES = tuple(rf"epoch {i}: mean loss \d\.\d+" for i in range(1, 6))
TOKENS = (r"step 10: loss [34]\.\d\d", r"step 20: loss [23]\.\d\d", r"step 30: loss 2\.\d\d")
ACCURATE = r"accuracy on 297 digits not seen: 0\.(8[5-9]|9\d)\d"
LEARNT = r"accuracy on 297 digits not seen: 0\.[89]\d\d"
GRADIENT = r"a step sent 10,\d+ bytes a rank of a gradient of 76,840"
PROBE = (
    r"300 rows of 512 frozen features, 5 classes the network has not seen",
    *(rf" +{alpha} +\d+ +\d+\.\d\d  0\.[89]\d\d" for alpha in ("100", "10", "1", "0.1", "0.01", "0.001")),
)
BEST = r"best alpha [\d.]+: accuracy 0\.9\d\d on the 296 rows kept for the end"
CLAIMS = (
    r"D² 0\.0[4-6]\d on 20,000 policies not fitted to",
    r"ten points more of bonus-malus: 1\.1[1-4] times the claims",  # e^0.12 = 1.127 is how they were made
    *(rf" +{i} +0\.\d{{3}} +\d+\.\d +\d+" for i in range(1, 11)),
    r"  all +2[56]\d\d\.\d +2[56]\d\d",
)
SAME = ("steps 30 to 60: loss 0.*", "steps 0 to 60: loss 0.*", "33,088 weights .* the same, bit for bit: True")

RUNS = [
    Run("ddp_classifier.py", 0, (*LOSSES, ACCURATE, "one rank has no one to talk to; .*")),
    Run("ddp_classifier.py", 2, (*LOSSES, ACCURATE, r"a step sent 78,\d+ bytes a rank; .* 7\.\d times as many")),
    Run("fsdp_transformer.py", 0, (*TOKENS, "one rank has no one to talk to; .*")),
    Run("fsdp_transformer.py", 2, (*TOKENS, r"a step sent 126,\d+ bytes a rank; .* 7\.\d times as many")),
    Run("linear_probe.py", 0, (*PROBE, r"the sweep took .* s; what ran: sgd, compiled, then newton, C", BEST)),
    Run("linear_probe.py", 2, (*PROBE, r"the sweep took .* s; what ran: ca_sgd s=\d+, .* C", BEST)),
    Run("poisson_claims.py", 0, (r"41 columns, \d+ epochs of sgd, .*", *CLAIMS)),
    Run("poisson_claims.py", 2, (r"41 columns, \d+ epochs of ca_sgd .*", *CLAIMS)),
    Run("resume_after_crash.py", 0, SAME, crashes=1),
    Run("resume_after_crash.py", 2, SAME, restarts=1),
    Run("lightning_fit.py", 0, (ACCURATE,), needs="lightning"),
    Run("lightning_fit.py", 2, (GRADIENT, ACCURATE), needs="lightning"),
    Run("accelerate_fit.py", 0, (ACCURATE,), needs="accelerate"),
    Run("accelerate_fit.py", 2, (GRADIENT, ACCURATE), needs="accelerate"),
    Run("transformers_trainer.py", 0, (LEARNT,), needs="transformers"),
    Run(
        "transformers_trainer.py",
        2,
        (r"a step sent 2\d,\d+ bytes a rank of a gradient of 276,776", LEARNT),
        needs="transformers",
    ),
    Run(
        "ray_train.py",
        0,
        (r"2 workers: loss \d\.\d\d, sent \d\.\d times .*", r"a linear model .*: R² 1\.000"),
        needs="ray",
    ),
]
STARTS_RANKS = ("ray_train.py",)
"""Examples whose ranks torchrun does not start."""


@pytest.mark.parametrize("start", TORCHRUN)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.file[:-3]}-{run.ranks or 'alone'}")
def test_runs_and_prints_what_it_promises(run, start, tmp_path):
    if start is torchrun and not run.ranks:
        pytest.skip("torchrun starts ranks")
    if run.needs and importlib.util.find_spec(run.needs) is None:
        pytest.skip(f"{run.needs} is not installed: pip install 'laconic[examples]'")
    script = ROOT / "examples" / run.file
    for _ in range(run.crashes):
        assert "the crash that was promised" in start(script, tmp_path, run.ranks).stderr
    done = start(script, tmp_path, run.ranks, run.restarts)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    missing = [wanted for wanted in run.prints if not any(re.fullmatch(wanted, line) for line in lines)]
    assert missing == [], done.stdout
    assert list(tmp_path.iterdir()) == []  # nothing is left lying about


def test_every_example_is_run_alone_and_under_torchrun():
    expected = [(name, ranks) for name in EXAMPLES for ranks in ((0,) if name in STARTS_RANKS else (0, 2))]
    assert sorted((run.file, run.ranks) for run in RUNS) == expected


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_docstring_says_how_to_run_it(name):
    text = (ROOT / "examples" / name).read_text().split('"""')[1]
    assert f"    python {name}" in text
    assert name in STARTS_RANKS or re.search(rf"    torchrun --nproc-per-node 4 .*{name}", text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_readme_names_it(name):
    assert f"(examples/{name})" in (ROOT / "README.md").read_text()
