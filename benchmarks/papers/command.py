"""`python -m benchmarks papers`."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.goals.outcome import in_document
from benchmarks.papers import command_options as p
from laconic.cli.bench.options import AsJson, Commit, Quiet, Rate
from laconic.cli.bench.running import Destination, Found, Tell, run_suite
from laconic.cli.errors import bad_input

if TYPE_CHECKING:
    from benchmarks.papers.ca_sgd.suite import CASGDOptions
    from benchmarks.papers.nuqsgd.options import NUQSGDOptions


def papers(
    suite: p.Suite,
    data: p.Data = None,
    device: p.Device = "cpu",
    ranks: p.Ranks = None,
    batch_size: p.BatchSize = None,
    iterations: p.Iterations = None,
    points: p.Points = None,
    problem: p.Problem = None,
    scale: p.Scale = None,
    s: p.Blocks = None,
    recipes: p.Recipes = None,
    rate: Rate = None,
    dataset: p.Dataset = None,
    model: p.Model = None,
    methods: p.Methods = None,
    workers: p.Workers = None,
    bits: p.Bits = None,
    bucket_size: p.BucketSize = None,
    epochs: p.Epochs = None,
    images: p.Images = None,
    learning_rate: p.LearningRate = None,
    seed: p.Seed = None,
    exchange: p.ExchangeName = None,
    commit: Commit = None,
    output: p.Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the two papers' experiments again, and print their figures beside ours.

    ca-sgd: loss and speed of SGD and CA-SGD in each precision. nuqsgd: residual networks whose gradients are quantised
    in each way: variance, loss, accuracy, bits. Small enough for a laptop by default; docs/papers.md says what differs.
    """
    given = dict(locals())
    to = Destination(output, as_json, quiet, commit)
    with bad_input():
        p.check_suite(given)
    if suite == "ca-sgd":
        run_suite("papers-ca-sgd", lambda: p.ca_sgd_options(given), _ca_sgd, to)
    else:
        run_suite("papers-nuqsgd", lambda: p.nuqsgd_options(given), _nuqsgd, to)


def _ca_sgd(options: "CASGDOptions", tell: Tell) -> Found | None:
    from benchmarks.papers import tables
    from benchmarks.papers.ca_sgd import goals, suite

    return _found(options, suite.ca_sgd_rows(options, tell), goals.ca_sgd_outcomes, goals.ca_sgd_claims, tables.CA_SGD)


def _nuqsgd(options: "NUQSGDOptions", tell: Tell) -> Found | None:
    from benchmarks.papers import tables
    from benchmarks.papers.nuqsgd import goals, suite

    return _found(options, suite.nuqsgd_rows(options, tell), goals.nuqsgd_outcomes, goals.nuqsgd_claims, tables.NUQSGD)


def _found(
    options: Any,
    rows: list[Any] | None,
    outcomes_of: Callable[[Any], list[Any]],
    claims_of: Callable[[Any], list[Any]],
    shown: Any,
) -> Found | None:
    if rows is None:
        return None
    outcomes, claims = outcomes_of(rows), claims_of(rows)
    said = {
        "title": shown.title,
        "about": shown.about(rows),
        "options": options.published(),
        "published": [asdict(claim) for claim in claims],
        **in_document(outcomes, shown.setting),
    }
    return Found(rows, lambda here: shown.page(rows, claims, outcomes, here), said)
