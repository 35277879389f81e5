"""`laconic plan`: from typical rates, from files and from a short measurement; what cannot be is told in one line."""

import json
import re

import pytest

from laconic.cli import main

MODEL = ["plan", "--rows", "400000", "--features", "2000", "--batch-size", "8"]
NETWORK = ["plan", "--parameters", "25000000", "--backward", "80ms"]
TYPICAL = ["--calibration", "typical"]


def planned(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    return json.loads(out)


def test_a_network_on_a_slow_and_on_a_fast_link(capsys):
    slow = planned(capsys, *NETWORK, *TYPICAL, "--ranks", "16", "--link", "1gbit")
    fast = planned(capsys, *NETWORK, *TYPICAL, "--ranks", "16", "--link", "400gbit")
    assert slow["compresses"]
    assert not fast["compresses"]
    assert fast["verdict"].startswith("do not compress")
    assert re.match(r"below [\d.]+ Gbit/s compression pays", slow["crossing"])
    assert slow["cluster"]["n_ranks"] == 16


def test_what_if_from_a_plan(capsys, tmp_path):
    file = tmp_path / "plan.json"
    here = planned(capsys, *MODEL, *TYPICAL, "--output", str(file))
    assert json.loads(file.read_text()) == here
    there = planned(capsys, "plan", "--from", str(file), "--ranks", "64", "--link", "25gbit", "--latency", "20us")
    assert there["job"] == here["job"]
    assert there["cluster"]["all_reduce"] == {"alpha_seconds": 2e-05, "seconds_per_byte": 3.2e-10, "wait_seconds": 0.0}
    paper = planned(capsys, "plan", "--from", str(file), "--ranks", "10000", "--algorithm", "best")
    assert paper["cluster"]["n_ranks"] == 10_000
    other = planned(capsys, *NETWORK, "--from", str(file))
    assert other["kind"] == "network"


BESIDE = {
    "batch size": (MODEL, ["--batch-size", "64"], {"batch_size": 64}),
    "classes": (MODEL, ["--family", "multinomial", "--outputs", "5"], {"family": "multinomial", "n_outputs": 5}),
    "half a model": (MODEL, ["--rows", "1000"], {"n_rows": 1000}),
    "a model": (MODEL, ["--density", "0.5", "--loss-gap", "0.02"], {"density": 0.5, "loss_gap": 0.02}),
    "a backward pass": (
        NETWORK,
        ["--backward", "1s", "--other", "2s"],
        {"backward_seconds": 1.0, "other_seconds": 2.0},
    ),
    "parameters": (NETWORK, ["--parameters", "7"], {"n_parameters": 7}),
}


@pytest.mark.parametrize(("command", "beside", "changed"), BESIDE.values(), ids=BESIDE)
def test_what_is_asked_beside_a_plan_comes_first_and_the_rest_stays(command, beside, changed, capsys, tmp_path):
    here = planned(capsys, *command, *TYPICAL, "--output", str(tmp_path / "plan.json"))
    there = planned(capsys, "plan", "--from", str(tmp_path / "plan.json"), *beside)
    assert there["job"] == here["job"] | changed
    assert there["cluster"] == here["cluster"]


def test_s_and_calibration_beside_a_plan(capsys, tmp_path):
    file = str(tmp_path / "plan.json")
    planned(capsys, *MODEL, *TYPICAL, "--ranks", "2", "--s", "4", "--output", file)
    assert planned(capsys, "plan", "--from", file)["s"] == 4
    there = planned(capsys, "plan", "--from", file, "--s", "8", *TYPICAL)
    assert (there["s"], there["cluster"]["n_ranks"], there["job"]["batch_size"]) == (8, 4, 8)
    assert planned(capsys, *NETWORK, "--from", file)["s"] is None


@pytest.mark.parametrize("command", [MODEL, NETWORK], ids=["model", "network"])
def test_tables_explanation_and_charts(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    page, picture = tmp_path / "chart.html", tmp_path / "chart.svg"
    assert main([*command, *TYPICAL, "--chart", str(page)]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "→" in out
    heading = out[out.index("Predicted time of") :].split("──")[0].split()
    assert {"×", "fp32", "C" if command is MODEL else "bf16"} <= set(heading)
    assert main([*command, *TYPICAL, "--explain", "--chart", str(picture)]) == 0
    explained = capsys.readouterr().out
    assert "messages" in explained
    assert "all options, by predicted time" in explained
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "prefers-color-scheme: dark" in text
    assert picture.read_text().startswith("<svg")
    assert text.count("data-chart=") == (2 if command is MODEL else 1)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A calibration of two ranks, once for all tests."""
    folder = tmp_path_factory.mktemp("plan")
    command = [*MODEL, "--ranks", "2", "--quiet", "--save", str(folder / "c.json"), "--output", str(folder / "p.json")]
    assert main(command) == 0
    return folder


def test_measured_here_and_kept(measured, capsys):
    capsys.readouterr()
    kept = json.loads((measured / "c.json").read_text())
    assert kept["laconic_calibration"] == 1
    assert kept["machine"]["torch"]
    assert kept["cluster"]["n_ranks"] == 2
    assert kept["noise"].keys() >= {"all_reduce", "all_to_all", "nuqsgd-4", "ca_sgd C"}
    assert kept["seconds"] > 0
    assert kept["gradient"] == "log-normal values"
    assert kept["cluster"]["codecs"]["dithered-0.1"]["error"] == pytest.approx(0.1, rel=0.01)
    assert all(rates["iteration_seconds"] >= 0 for rates in kept["cluster"]["solvers"].values())
    again = planned(capsys, *MODEL, "--calibration", str(measured / "c.json"))
    first = json.loads((measured / "p.json").read_text())
    assert again == first
    assert not list(measured.glob(".*.tmp"))
    inside = planned(capsys, *NETWORK, "--calibration", str(measured / "p.json"))
    assert inside["cluster"] == first["cluster"]


WRONG = {
    "nothing": (["plan"], "say what to plan"),
    "half a model": (["plan", "--rows", "10"], "say what to plan"),
    "both": ([*MODEL, "--parameters", "10"], "not both"),
    "s above an epoch": ([*MODEL, *TYPICAL, "--s", "100000"], "more than the 50000 batches of an epoch"),
    "batch above the rows": (["plan", "--rows", "5", "--features", "2"], "a batch of 32 rows does not fit into 5"),
    "family": ([*MODEL, "--family", "cauchy"], "unknown --family cauchy; choose one of logistic,"),
    "one class": ([*MODEL, "--family", "multinomial"], "give --outputs, the number of classes, 2 or more"),
    "outputs of one": ([*MODEL, "--outputs", "7"], "--family logistic has one output; leave --outputs out"),
    "a network's family": (
        [*NETWORK, "--family", "poisson"],
        "--family is about a model and --parameters about a network",
    ),
    "a network's s": ([*NETWORK, "--s", "2"], "--s is about a model"),
    "a network's batch, from a plan": (
        ["plan", "--from", "network.json", "--batch-size", "8"],
        "give --rows and --features",
    ),
    "a model's backward, from a plan": (["plan", "--from", "model.json", "--backward", "1s"], "give --parameters"),
    "s above a plan's epoch": (["plan", "--from", "model.json", "--rows", "100", "--s", "9"], "give --s 4 or less"),
    "density": ([*MODEL, "--density", "2"], "--density must be above 0 and at most 1, got 2.0"),
    "a loss gap of no number": ([*MODEL, *TYPICAL, "--loss-gap", "nan"], "--loss-gap must be a number of at least 0"),
    "a loss gap without end": ([*MODEL, *TYPICAL, "--json", "--loss-gap", "inf"], "--loss-gap must be a number of"),
    "a device beside a plan": (
        ["plan", "--from", "network.json", "--device", "cpu"],
        "--device is what to measure, and --from measures nothing",
    ),
    "a device beside a calibration": (
        [*NETWORK, *TYPICAL, "--device", "cuda"],
        "--device is what to measure, and --calibration measures nothing",
    ),
    "a gradient beside a plan": (
        ["plan", "--from", "network.json", "--gradient", "g.npy"],
        "--gradient is what to measure, and --from measures nothing",
    ),
    "no gradient": ([*NETWORK, "--gradient", "missing.npy"], "missing.npy: there is no such file"),
    "a model on a GPU": ([*MODEL, "--device", "cuda"], "laconic bench glm --device cuda"),
    "device": ([*MODEL, "--device", "tpu"], "unknown --device tpu; choose one of cpu, cuda"),
    "too many ranks": ([*MODEL, "--ranks", "1000"], "--ranks must be from 1 to 64 to be started here"),
    "link": ([*MODEL, *TYPICAL, "--link", "fast"], "such as 25gbit"),
    "latency": ([*MODEL, *TYPICAL, "--latency", "soon"], "such as 20us"),
    "algorithm": ([*MODEL, *TYPICAL, "--algorithm", "star"], "unknown --algorithm star"),
    "png": ([*MODEL, *TYPICAL, "--chart", "x.png"], "written as .html or .svg, not .png"),
    "two things into one file": ([*MODEL, *TYPICAL, "-o", "x.svg", "--chart", "./x.svg"], "x.svg is given twice"),
    "no folder": ([*MODEL, *TYPICAL, "--output", "/nowhere/plan.json"], "/nowhere"),
    "nothing to save": ([*MODEL, *TYPICAL, "--save", "c.json"], "nothing was"),
    "no calibration": ([*MODEL, "--calibration", "missing.json"], "cannot read missing.json"),
    "no plan": (["plan", "--from", "missing.json"], "cannot read missing.json"),
    "not a plan": (["plan", "--from", "wrong.json"], "not a plan of version 1"),
    "not a calibration": (
        [*MODEL, "--calibration", "wrong.json"],
        "laconic: wrong.json: not a calibration of version 1",
    ),
    "not json": (
        ["plan", "--from", "text.json"],
        "laconic: text.json is not JSON; give a file that laconic plan wrote",
    ),
    "does not fit": ([*MODEL, "--calibration", "small.json"], "does not fit; use more ranks"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, capsys, monkeypatch, tmp_path):
    from dataclasses import replace

    from laconic.measure.calibrate import Calibration
    from laconic.planner import DEFAULT, GlmJob, NetworkJob, plan

    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.json").write_text("{}")
    (tmp_path / "text.json").write_text("not JSON")
    for name, job in (("model", GlmJob(1000, 10)), ("network", NetworkJob(1000))):
        (tmp_path / f"{name}.json").write_text(json.dumps(plan(job, DEFAULT).to_json()))
    Calibration(replace(DEFAULT, memory_bytes=1e6)).save(tmp_path / "small.json")
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laconic: ")
    assert err.count("\n") == 1
    assert said in err
    assert not list(tmp_path.glob(".*.tmp"))


def test_where_there_is_nothing_to_draw_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*NETWORK, *TYPICAL, "--ranks", "1", "-o", "plan.json", "--chart", "x.svg"]) == 2
    assert "one rank sends nothing, so that there is nothing to draw" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
