"""A small document of every suite, as `laconic bench` and the others write them: made up, or of a result."""

import json
import math
from pathlib import Path

import benchmarks  # noqa: F401 (registers its suites)
import laconic.bench  # noqa: F401 (registers its suites)

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SPREAD = {"median": 2.0, "p20": 1.5, "p80": 2.5}
ENVIRONMENT = {
    "cpu": "some CPU",
    "n_cores": 2,
    "torch": "2.9",
    "commit": "0123456789abcdef+dirty",
    "date": "2026-01-02T03:04:05+00:00",
}
GOALS = {
    "goals": [
        {"name": "fast enough", "value": SPREAD, "floor": 1.5, "aim": 2.5, "verdict": "floor"},
        {"name": "small enough", "value": SPREAD, "floor": 1.0, "aim": 0.5, "verdict": "missed"},
    ],
    "goals_for": "a quiet machine",
}
CURVE = [
    {"iteration": i, "seconds": 0.1 * i, "bytes": 1e6 * i, "loss": math.exp(-i), "variance": 0.2, "accuracy": i / 9}
    for i in range(10)
]


def _rows(*rows):
    return [{**row, "environment": ENVIRONMENT} for row in rows]


def _bench(suite, *rows, **more):
    return {"suite": suite, "options": {"ranks": 4, "rate": "1gbit"}, **GOALS, **more, "rows": _rows(*rows)}


def _step(contender, **more):
    return {
        "contender": contender,
        "n": 4096,
        "ranks": 4,
        "rate": "1gbit",
        "seconds": SPREAD,
        "speedup_over_fp32": SPREAD,
        "speedup_over_bf16": SPREAD,
        "bytes_sent": 1e6,
        "loss": 0.5,
        **more,
    }


def _glm(contender, **more):
    return _step(contender, problem="susy", n_rows=100, n_features=18, messages=1.0, loss_gap=0.001, **more)


PUBLISHED = [
    {
        "what": "speed-up",
        "published": "5.1 to 6.8",
        "measured": 5.5,
        "unit": "×",
        "verdict": "holds",
        "source": "Table 1",
    },
    {
        "what": "gap",
        "published": 0.5,
        "measured": None,
        "unit": "%",
        "verdict": None,
        "source": "Table 2",
        "note": "no",
    },
    {"what": "variance", "published": 2, "measured": 3, "verdict": "no", "source": "Figure 3"},
]
PAPER_ROWS = [
    _glm("fp32", curve=CURVE, bits=32.0, bits_per_coordinate=32.0),
    _glm(
        "nuqsgd-4",
        curve=CURVE,
        bits=4.0,
        bits_per_coordinate=4.0,
        entropy=1.8,
        variance=0.2,
        bound=0.6,
        accuracy=0.9,
        bits_by_coder={"rans": 1.9},
    ),
]
FIT = {
    "data": "policies.csv",
    "n_rows": 2000,
    "n_features": 3,
    "family": "logistic",
    "ranks": 2,
    "ran": "sgd, compiled",
    "epochs": 3,
    "iterations": 30,
    "because": "max_iter epochs were done",
    "loss": 0.44,
    "metrics": {"accuracy": 0.79, "log_loss": 0.44},
    "test_metrics": None,
    "fit_seconds": 1.0,
    "history": [
        {"epoch": i, "iteration": 10 * i, "loss": 1 / i, "eta": 0.1, "seconds": 0.1 * i, "bytes_sent": 80 * i}
        for i in range(1, 4)
    ],
}
CODEC = {
    "problem": "normal",
    "contender": "nuqsgd-4",
    "via": "codec",
    "operation": "encode",
    "seconds": SPREAD,
    "ratio_to_copy": SPREAD,
    "gb_per_second": 3.0,
    "n_payloads": 4,
}
ERROR_ROWS = [
    {
        "gradient": gradient,
        "n": 4096,
        "kurtosis": 3.0,
        "contender": name,
        "ours": ours,
        "unbiased": True,
        "curve": [{"config": f"bits={bits}", "bits": bits, "error": scale * 4.0**-bits} for bits in (1, 2, 4)],
    }
    for gradient in ("rows", "mine.npy")
    for name, ours, scale in (("dithered", True, 1.0), ("EDEN", False, 2.0))
]
PLAN_ROW = {
    "kind": "glm",
    "problem": "susy",
    "ranks": 2,
    "rate": None,
    "option": "sgd fp32",
    "predicted": 1.0,
    "measured": SPREAD,
    "recommended": True,
    "error": 0.1,
}
TERM = {"knob": "data", "format": "bf16", "bound": 1e-2, "measured": 1e-3, "ratio": 10.0, "holds": True}


PAPER = [{"contender": "C", "curve": [{"ranks": ranks, "seconds": 1.0 / ranks} for ranks in (1, 10_000)]}]


def _scaling(ranks):
    return _glm("ca_sgd C", kind="strong", column="C", device=None, over_sgd=9.0, over_one=2.0) | {"ranks": ranks}


def _optimum(contender):
    return _glm(contender, data="digits", columns="raw", objective=0.5, gap=1e-9, score=0.9, converged=True) | {
        "seconds": 0.1,
        "threads": 1,
    }


TRAINED = {"task": "text", "workers": 4, "family": "nuqsgd", "bits_in_all": 4.1, "error": 0.2, "squared_error": 0.2}


DIGITS = {"sgd_fp32": 1e-7, "ca_sgd_fp32": 2e-7, "ca_sgd_C": 1e-3, "digits_lost": 0.3, "gap_fp32": 0.0, "gap_C": 1e-4}


def _measured():
    """Of the other suites the first result that is in the repository, a row of each kind."""
    found = {}
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        kinds = {tuple(not value for value in row.values()): row for row in reversed(document["rows"])}
        found.setdefault(document["suite"], document | {"rows": list(kinds.values())})
    return found


DOCUMENTS = _measured() | {
    "analyze": _bench("analyze", TERM, {**TERM, "measured": 0.0}, recipes=[{"recipe": "C", "measured": 1e-3}]),
    "codec-error": _bench("codec-error", *ERROR_ROWS),
    "decentralised": _bench(
        "decentralised",
        _step("DDP fp32", losses=[2.0, 1.0, 0.5], n_steps=10),
        _step("ecd ring", losses=[2.0, None, 0.6], n_steps=10, distance=0.1),
    ),
    "demo": {
        "suite": "demo",
        "curves": PAPER_ROWS,
        "glm": [_glm("sgd fp32"), _glm("nothing", is_floor=True)],
        "ddp": [_step("DDP fp32")],
        "rows": _rows({**CODEC, "bits_per_coordinate": 4.0, "error": 0.2, "bound": 0.6}),
    },
    "fit": FIT,
    "fsdp": _bench("fsdp", _step("FSDP2 fp32"), _step("nuqsgd-4/512", encode_seconds=1e-3)),
    "fsdp-loss": _bench(
        "fsdp-loss", *(_step(name, seconds=0.1, loss_over_fp32=1.0, worst=1.0, n_seeds=3, n_steps=9) for name in "ab")
    ),
    "glm-device": _bench("glm-device", _glm("graphed", over_graphed=1.0, over_eager=7.0), _glm("C", over_jax=3.0)),
    "glm-optimum": _bench("glm-optimum", *(_optimum(name) for name in ("laconic", "scikit-learn"))),
    "glm-stages": _bench("glm-stages", *(_glm(name, stage=name, bytes_seconds=1e-6) for name in ("Gram", "update"))),
    "glm-sweep": _bench(
        "glm-sweep", *(_glm(name, over=SPREAD, n_classes=10, ran="sgd") for name in ("one", "16 alphas"))
    ),
    "glm-time-to": _bench("glm-time-to", _glm("laconic", over_ours=SPREAD, objective=0.5, optimum=0.4)),
    "imagenet": _bench("imagenet", *(_step(name, problem="resnet-50", epoch_hours=9.0) for name in ("fp32", "bf16"))),
    "lm": _bench(
        "lm", *(_step(name, seconds=0.1, problem="text", speedup=2.0, curve=CURVE) for name in ("fp32", "bf16"))
    ),
    "sensitivity": _bench("sensitivity", *({"varied": "s", "value": s, **DIGITS} for s in (1, 4))),
    "kernels": _bench("kernels", CODEC, {**CODEC, "dtype": "bfloat16"}),
    "papers-ca-sgd": _bench("papers-ca-sgd", *PAPER_ROWS, published=PUBLISHED),
    "papers-nuqsgd": _bench("papers-nuqsgd", *PAPER_ROWS, published=PUBLISHED, title="NUQSGD", about="Small."),
    "plan": _bench("plan", PLAN_ROW, regrets=[{"problem": "susy", "regret": 1.1}, {"problem": "higgs", "regret": 1.0}]),
    "scaling": _bench("scaling", *(_scaling(ranks) for ranks in (1, 4)), paper=PAPER, left_out=[]),
    **{
        suite: _bench(
            suite,
            *({**TRAINED, "contender": f"nuqsgd-{b}", "bits": float(b), "loss_over_fp32": 1.0 + 1 / b} for b in (2, 4)),
        )
        for suite in ("ddp-loss", "training")
    },
    "plan-made": {
        "laconic_plan": 1,
        "recommended": "ca_sgd C s=16",
        "verdict": "Take it.",
        "crossing": "",
        "options": [{"label": "sgd fp32", "seconds": 1.0}],
    },
}
UNKNOWN = _bench("of tomorrow", {"name": "a", "nested": {"x": [1]}, "speed": SPREAD}, {"name": "b", "speed": None})
