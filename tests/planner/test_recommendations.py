"""Recommendations: what a link decides, what is explained, and what survives a file."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import laconic.planner as planner
from laconic.planner import DEFAULT, Cluster, GlmJob, Link, NetworkJob, best_s, from_json, plan

NETWORK, GLM = NetworkJob(25_000_000, 0.05), GlmJob(400_000, 2000, batch_size=8)
PURE = ("terms", "cluster", "glm", "network", "plan")


WIDE = GlmJob(400_000, 2_000_000, batch_size=8)
"""So many columns that 16 ranks are faster than one process."""
RANKS_ONLY = replace(DEFAULT, solvers={k: v for k, v in DEFAULT.solvers.items() if not k.endswith("one process")})


def at(bits_per_second, n_ranks=4, alpha=50e-6):
    return DEFAULT.what_if(n_ranks, bits_per_second, alpha)


def on_ranks(*link, **more):
    return replace(at(*link, **more), solvers=RANKS_ONLY.solvers)


def test_compression_pays_on_slow_links_only_and_the_crossover_says_where():
    slow, fast = plan(NETWORK, at(1e8)), plan(NETWORK, at(4e11))
    assert slow.compresses
    assert not fast.compresses
    assert fast.verdict().startswith("do not compress: use ")
    edge = slow.crossover
    assert edge.below
    assert edge == fast.crossover
    assert plan(NETWORK, at(edge.bits_per_second * 0.99)).compresses
    assert not plan(NETWORK, at(edge.bits_per_second * 1.01)).compresses
    assert slow.crossing().startswith("below ")


VERDICTS = {
    "a codec": (NETWORK, at(1e8), r"use dithered-0.1 by .*, [\d.]+× the speed of fp32, [\d.]+× that of bf16"),
    "bf16": (NETWORK, at(1e10), r"do not compress: use bf16 by all_reduce; \S+ ms a step, [\d.]+× the speed of fp32"),
    "fp32": (NETWORK, at(4e11), r"do not compress: use fp32 by all_reduce; \S+ ms a step, [\d.]+× the speed of bf16"),
    "blocks": (GLM, on_ranks(1e9), r"use ca_sgd .*× the speed of sgd in recipe fp32, [\d.]+× that of sgd in recipe C"),
    "blocks beside one process": (
        WIDE,
        at(1e9, 16, 500e-6),
        r"use ca_sgd .*× the speed of one process, [\d.]+× that of sgd in recipe fp32, [\d.]+× that of sgd in recipe C",
    ),
    "one process": (
        GLM,
        at(1e9),
        r"do not use ranks: take one process, sgd in recipe fp32; .*, [\d.]+× the speed of 4 ranks with ca_sgd .*",
    ),
    "sgd": (
        replace(GLM, batch_size=256),
        on_ranks(1e6),
        r"a message .*: use sgd in recipe fp32; .* iteration, [\d.]+× the speed of sgd in recipe C",
    ),
}


@pytest.mark.parametrize(("job", "cluster", "said"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_compares_with_the_baselines_that_are_not_it(job, cluster, said):
    assert re.fullmatch(said, plan(job, cluster).verdict())


def test_one_rank_is_one_process():
    """Rates that were taken on several ranks have both."""
    alone, ranks = plan(GLM, at(1e9, 1)), plan(GLM, at(1e9))
    assert alone.recommended.option.label == "sgd fp32"
    assert alone.recommended.seconds == ranks.one_process.seconds


def test_fewer_messages_pay_where_latency_counts():
    near, far = (best_s(GLM, at(1e10, alpha=alpha)) for alpha in (1e-6, 1e-2))
    assert near < far
    chosen = plan(GLM, on_ranks(1e10, alpha=1e-2))
    assert chosen.recommended.option.s == far
    assert chosen.speedup_over_fp32 > 10


@pytest.mark.parametrize("s", [None, 1, 8])
def test_one_process_is_always_listed_and_fits_into_the_machine(s):
    found = plan(GLM, at(1e9), s)
    assert found.one_process == found.recommended
    assert found.to_json()["one_process_seconds"] == found.one_process.seconds
    need = found.one_process.memory_bytes
    rank = replace(at(1e9), memory_bytes=need / 2)
    assert not plan(GLM, rank, s).recommended.option.alone
    assert plan(GLM, replace(rank, machine_bytes=need), s).recommended.option.alone


def test_no_recommendation_is_slower_than_another_allowed_option():
    for rate in (1e7, 1e9, 1e11):
        for job in (NETWORK, GLM, replace(GLM, loss_gap=0.0)):
            found = plan(job, at(rate))
            allowed = [c for c in found.predictions if getattr(c.option, "recipe", "") not in ("C", "D")]
            assert found.recommended.seconds <= 1.1 * min(c.seconds for c in allowed)


def test_recipes_that_may_lose_too_much_are_left_out():
    recipes = [
        {c.option.recipe for c in plan(replace(GLM, loss_gap=gap), DEFAULT).predictions} for gap in (0.0, 0.005, 1)
    ]
    assert recipes == [{"fp32", "C"}, {"fp32", "C"}, {"fp32", "C", "D"}]  # C stays as the bf16 baseline
    fast = {name: replace(rates, iteration_seconds=0.0) for name, rates in DEFAULT.solvers.items() if "C" in name}
    narrow = replace(DEFAULT, solvers={**DEFAULT.solvers, **fast})
    assert plan(GLM, narrow).recommended.option.recipe == "C"
    assert plan(replace(GLM, loss_gap=0.0), narrow).recommended.option.recipe == "fp32"
    alone = replace(narrow, n_ranks=1)
    assert plan(GLM, alone).recommended.option.label == "sgd C"
    assert plan(replace(GLM, loss_gap=0.0), alone).recommended.option.recipe == "fp32"


@pytest.mark.parametrize("job", [NETWORK, GLM], ids=["network", "glm"])
def test_every_number_of_the_explanation_can_be_redone(job):
    found = plan(job, at(1e9))
    text = found.explain()
    for term in found.recommended.cost.terms:
        if term.seconds:
            assert str(term) in text
            assert term.count * term.seconds_each == term.seconds
    assert all(choice.option.label in text for choice in found.predictions)
    for choice in found.predictions:
        parts = sum(term.seconds for term in choice.cost.terms) - choice.cost.hidden
        assert parts / choice.cost.iterations == pytest.approx(choice.seconds)


@pytest.mark.parametrize("job", [NETWORK, GLM], ids=["network", "glm"])
def test_a_plan_survives_a_file(job):
    found = plan(job, at(1e9))
    again = from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert again == found


SLOW_C = {name: replace(rates, iteration_seconds=1.0) for name, rates in DEFAULT.solvers.items() if "sgd C" in name}
TIGHT = {
    "fp32 of a network": (NETWORK, replace(at(4e11), memory_bytes=14 * NETWORK.n_parameters)),
    "all but codecs": (NETWORK, replace(at(4e11), memory_bytes=10 * NETWORK.n_parameters)),
    "fp32 of a model": (GLM, replace(DEFAULT, n_ranks=1, solvers=DEFAULT.solvers | SLOW_C, memory_bytes=2e9)),
}


@pytest.mark.parametrize(("job", "cluster"), TIGHT.values(), ids=TIGHT)
def test_what_memory_does_not_hold_is_shown_beside_but_not_recommended(job, cluster):
    found = plan(job, cluster)
    assert found.fp32.memory_bytes > cluster.memory_bytes >= found.recommended.memory_bytes
    assert found.fp32.seconds < found.recommended.seconds
    assert found.fp32 in found.predictions
    assert from_json(json.loads(json.dumps(found.to_json()))) == found


def test_where_only_codecs_fit_they_pay_at_every_rate():
    assert plan(*TIGHT["all but codecs"]).crossing() == "compression pays at every rate of the link"


def test_ten_thousand_ranks_on_paper():
    found = plan(NETWORK, replace(at(25e9, 10_000, 20e-6), algorithm="best"))
    assert found.recommended.seconds > 0
    assert "all_gather" not in found.recommended.option.label


def test_one_rank_has_no_crossover():
    found = plan(NETWORK, replace(DEFAULT, n_ranks=1))
    assert found.recommended.option.codec == "fp32"
    assert found.crossing() == "one rank sends nothing"


def damaged(**values):
    return {**DEFAULT.to_json(), **values}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: from_json({}), "not a plan of version 1"),
        (lambda: from_json({"laconic_plan": 1, "kind": "x"}), "job cannot be read"),
        (lambda: Cluster.from_json({"n_ranks": 2}), "not a cluster"),
        (lambda: Cluster.from_json(damaged(n_ranks=2.5)), "cluster: n_ranks must be a whole number"),
        (lambda: Cluster.from_json(damaged(n_ranks=float("inf"))), "cluster: n_ranks must be a whole number"),
        (lambda: Cluster.from_json(damaged(memory_bytes="8 GB")), "memory_bytes of a cluster must be a number"),
        (lambda: Cluster.from_json(damaged(sync_seconds=-5)), "sync_seconds of a cluster .* at least 0, got -5"),
        (lambda: Cluster.from_json(damaged(uncertainty=None)), "uncertainty of a cluster must be a number"),
        (lambda: replace(DEFAULT.codecs["bf16"], bits="16"), "bits of a codec must be a number"),
        (lambda: replace(DEFAULT.solvers["sgd C"], gemv_seconds=float("nan")), "gemv_seconds of a solver"),
        (lambda: from_json({**plan(GLM, DEFAULT).to_json(), "s": -3}), "s must be a whole number, at least 1; got -3"),
        (lambda: from_json({"laconic_plan": 1, "kind": "network", "job": {"n_parameters": 3}}), "not a cluster"),
        (lambda: plan(NETWORK, replace(DEFAULT, codecs={})), "no rates of fp32, only of: none"),
        (lambda: Cluster(0, Link(0, 0), Link(0, 0), Link(0, 0)), "cluster: n_ranks .* at least 1; got 0"),
        (lambda: Link(float("nan"), 0.0), "alpha_seconds"),
        (lambda: replace(DEFAULT, algorithm="star"), "unknown algorithm='star'"),
        (lambda: replace(DEFAULT, n_ranks=1).what_if(64), "calibrate with ranks=2"),
        (lambda: DEFAULT.what_if(bits_per_second=0.0), "above 0"),
        (lambda: DEFAULT.what_if(0), "n_ranks must be a whole number, at least 1; got 0"),
    ],
)
def test_mistakes_are_told(ask, said):
    with pytest.raises(ValueError, match=said):
        ask()


def test_the_guide_s_example_is_what_is_printed():
    guide = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()
    code = re.search(r"```python\n(.*?)```", guide, flags=re.DOTALL).group(1)
    shown = re.search(r"```text\n(.*?)```", guide, flags=re.DOTALL).group(1)
    names: dict = {}
    exec(code.split("print(")[0], names)  # noqa: S102
    printed = "\n".join(line.rstrip() for line in names["made"].explain().splitlines())
    assert printed.startswith(shown.strip())


def test_the_formulas_need_no_torch():
    folder = Path(planner.__file__).parent
    for name in PURE:
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [m for m in found if m.split(".")[0] in ("torch", "numpy", "numba", "scipy")], name
