"""`laconic analyze`: the table, the report, the plot, and one clear line for every mistake."""

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from laconic.cli import main
from laconic.glm import KNOBS, recipe
from laconic.report import Bar, BarChart, bars, text_bar
from laconic.report.charts import Bars

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 5)).round(4)
Z = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.2])
COLUMNS = {f"x{j}": X[:, j] for j in range(5)} | {
    "exposure": RNG.uniform(0.5, 1.0, 200).round(3),
    "label": np.where(RNG.random(200) < 1 / (1 + np.exp(-Z)), "yes", "no"),
    "kind": np.where(Z > 0.7, "high", np.where(Z < -0.7, "low", "middle")),
    "number": (Z + 0.1).round(4),
    "count": RNG.poisson(np.exp(0.5 * Z)),
}
FAMILIES = {
    "logistic": ["--target", "label"],
    "multinomial": ["--target", "kind"],
    "linear": ["--target", "number"],
    "poisson": ["--target", "count", "--exposure", "exposure"],
}
SMALL = ["--blocks", "2", "--s", "4", "--batch-size", "8", "-q"]


@pytest.fixture
def csv(tmp_path):
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in zip(*COLUMNS.values(), strict=True))]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(csv, family):
    used = FAMILIES[family]
    dropped = ",".join(name for name in ("exposure", "label", "kind", "number", "count") if name not in used)
    return ["analyze", str(csv), "--family", family, *used, "--drop", dropped, *SMALL]


def report(capsys, *given):
    assert main([*given, "--json"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert not err
    return json.loads(out)


@pytest.mark.parametrize("family", FAMILIES)
def test_report(csv, capsys, family):
    found = report(capsys, *arguments(csv, family))
    rows = found["rows"]
    assert [row["knob"] for row in rows if row["format"] == "bf16"] == list(KNOBS)
    assert all(row["holds"] and row["measured"] <= row["bound"] for row in rows)
    assert all(row["environment"]["torch"] for row in rows)
    assert (found["suite"], found["family"], found["s"], found["n_rows"]) == ("analyze", family, 4, 200)
    assert len(found["blocks"]) == 2
    assert [one["recipe"] for one in found["recipes"]] == ["fp32", "C", "D"]
    assert [choice["tolerance"] for choice in found["choices"]] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
    assert all(choice["measured"] <= choice["tolerance"] for choice in found["choices"])
    assert set(found["choices"][0]["precision"]) == set(KNOBS)


def test_a_term_without_a_bound_is_null_in_json(csv, capsys):
    lines = csv.read_text().splitlines()
    csv.write_text("\n".join([lines[0], *("1e6" + line[line.index(",") :] for line in lines[1:])]) + "\n")
    found = report(capsys, *arguments(csv, "logistic"), "--no-standardize", "--eta0", "1e-14")
    assert any(row["bound"] is None and row["format"] == "fp16" for row in found["rows"])


def test_table(csv, capsys):
    assert main(arguments(csv, "logistic")) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "200 rows × 5 columns; logistic; s = 4, batches of 8" in out
    assert "every bound holds; bound ÷ measured is" in out
    for knob in KNOBS:
        assert len(re.findall(rf"^(?:fp32|fp16|bf16) +{knob} ", out, re.MULTILINE)) == 3
    assert re.search(r"^ *1e-06 +(fp32|fp64)", out, re.MULTILINE)


@pytest.mark.parametrize("device", ["cuda-ampere", "cuda-hopper"])
def test_one_tolerance_and_the_formats_of_a_gpu(csv, capsys, device):
    found = report(capsys, *arguments(csv, "linear"), "--tolerance", "0.05", "--device", device)
    assert [choice["tolerance"] for choice in found["choices"]] == [0.05]
    formats = {row["format"] for row in found["rows"] if row["knob"] == "gram_operand"}
    assert "tf32" in formats
    assert ("fp8-e4m3" in formats) == (device == "cuda-hopper")
    assert found["choices"][0]["explained"].startswith("tolerance 0.05: ")


def test_one_rank_has_no_wire(csv, capsys):
    found = report(capsys, *arguments(csv, "linear"), "--ranks", "1")
    assert [row["measured"] for row in found["rows"] if row["knob"] == "gram_wire"] == [0.0, 0.0, 0.0]
    assert recipe("C").gram_wire == "fp32"


@pytest.mark.parametrize("suffix", ["svg", "html", "json"])
def test_files(csv, capsys, tmp_path, suffix):
    path = tmp_path / f"plot.{suffix}"
    assert main([*arguments(csv, "linear"), "-o", str(path)]) == 0
    text = path.read_text()
    if suffix == "json":
        assert json.loads(text)["suite"] == "analyze"
        return
    assert "prefers-color-scheme:dark" in text.replace(" ", "")
    if suffix == "html":
        assert text.count('class="bar"') >= 20  # one a knob and a format; a knob that costs nothing has none
        assert "Content-Security-Policy" in text
        return
    svg = ElementTree.fromstring(text)  # noqa: S314 (our own)
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}rect")) >= 2 * 27
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_bars():
    rows = [Bar("<knob>", 0.0, limit=float("inf")), Bar("x", 1e-3, limit=1e-2)]
    drawn = bars(Bars(BarChart('a < b & "c"', "", limit=("", "high"), log=True), rows))
    root = ElementTree.fromstring(drawn)  # noqa: S314 (our own)
    assert root.get("aria-label") == 'a < b & "c"'
    assert "<knob>" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "0 / ∞" in drawn
    assert bars(Bars(BarChart("empty", ""), [])).startswith("<svg")
    assert text_bar(float("inf"), 1e-3, 1.0, 4) == "████→"
    assert len(text_bar(1.0, 1e-3, 1.0, 4)) == 4


MISTAKES = [
    (["--tolerance", "1e-16"], "tolerance 1e-16 cannot be met: fp64 itself may err by"),
    (["--tolerance", "2"], "--tolerance must be a number between 0 and 1 (at 1 the error is as large as the step)"),
    (["--tolerance", "low"], "Invalid value for '--tolerance'"),
    (["--device", "tpu"], "unknown --device tpu; choose one of cpu, cuda-ampere, cuda-hopper"),
    (["--eta0", "-1"], '--eta0 must be a number from 0 (excluded) to inf, or "auto"; got -1'),
    (["--eta0", "1e9"], "lower --eta0"),
    (["--s", "abc"], "--s must be a whole number, at least 1, or \"auto\"; got 'abc'"),
    (["--alpha", "-1"], "--alpha must be a number from 0 to inf; got -1.0"),
    (["-o", "plot.png"], "plot.png: a plot is .svg or .html, a report .json"),
    (["-o", "no/such/plot.svg"], "cannot write no/such/plot.svg"),
    (["--family", "hinge"], "unknown --family hinge; choose one of logistic"),
    (["--target", "nothing"], "nothing"),
]


@pytest.mark.parametrize(
    ("more", "said"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_mistakes_are_one_line(csv, capsys, more, said):
    assert main([*arguments(csv, "linear"), *more]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert err.startswith("laconic: ")
    assert said in err, err
