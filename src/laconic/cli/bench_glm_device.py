"""`laconic bench glm --device cuda`."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from laconic.cli import fit_options as o
from laconic.cli.bad_input import BadInput, bad_input
from laconic.cli.bench_output import publish
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.bench.environment import GPUEnvironment
    from laconic.bench.glm.device import DeviceOptions, DeviceRow
    from laconic.bench.goals import Outcome

Page = Iterator[Any]


def on_device(given: dict[str, Any], s: Sequence[int]) -> tuple[str, Page]:
    """Run the suite; the JSON document, and what a person is shown."""
    from laconic import bench
    from laconic.bench.environment import GPUEnvironment
    from laconic.bench.glm import device as suite
    from laconic.bench.glm import device_goals as goals
    from laconic.bench.glm.device_data import DEVICE_SHAPES

    with ExitStack() as stack:
        with bad_input():
            if given["data"] is not None or given["ranks"] not in (None, 1) or given["rate"] is not None:
                raise BadInput(
                    "--device is for synthetic problems in one process; leave --data, --ranks and --rate out"
                )
            names = list(o.names(given["problem"]))
            options = suite.DeviceOptions(
                problems=list(DEVICE_SHAPES) if names == ["all"] else names,
                device=given["device"],
                scale=given["scale"] if given["scale"] is not None else 1.0,
                s=s,
                batch_size=given["batch_size"] or 32,
                iterations=given["iterations"] or 8192,
                repeats=given["repeats"],
                recipes=o.names(given["recipes"]),
            )
            target = stack.enter_context(bench.replacing(given["output"])) if given["output"] else None
        environment = GPUEnvironment.here(options.device, given["commit"])
        begin = stack.enter_context(progress(options.n_parts, quiet=given["quiet"]))
        rows = suite.device_rows(options, begin)
        outcomes = goals.device_outcomes(rows)
        text = publish("glm-device", rows, environment, outcomes, goals.SETTING, target, options=asdict(options))
    return text, _page(rows, outcomes, options, environment)


def _page(
    rows: "Sequence[DeviceRow]", outcomes: "Sequence[Outcome]", options: "DeviceOptions", here: "GPUEnvironment"
) -> Page:
    from laconic.bench.glm.device_goals import SETTING, device_losses
    from laconic.cli import bench_tables
    from laconic.cli.bench_glm_tables import lost

    yield (
        f"{here.gpu}; CUDA {here.cuda}, python {here.python}, torch {here.torch}, triton {here.triton}, "
        f"laconic {here.laconic}, commit {(here.commit or 'none')[:12]}; {here.date}"
    )
    yield f"batches of {options.batch_size}; medians of {options.repeats} rounds\n"
    for problem in options.problems:
        yield _table([row for row in rows if row.problem == problem])
        yield ""
    yield from lost(device_losses(rows))
    if outcomes:
        yield ""
        yield bench_tables.goals(outcomes, SETTING)


def _table(rows: "Sequence[DeviceRow]") -> Any:
    from laconic.report import Column, number, table

    first = rows[0]
    columns: list[Column[DeviceRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("µs", lambda r: number(1e6 * r.seconds.median)),
        Column("20–80 %", lambda r: f"{number(1e6 * r.seconds.p20)}–{number(1e6 * r.seconds.p80)}"),
        Column("×\neager", lambda r: number(r.over_eager)),
        Column("×\ngraphed", lambda r: number(r.over_graphed)),
        Column("× graph.\nbf16", lambda r: number(r.over_graphed_bf16)),
        Column("×\njax", lambda r: number(r.over_jax)),
        Column("from\nfp64", lambda r: f"{r.difference:.1e}"),
        Column("loss\ngap %", lambda r: "–" if r.loss_gap is None else f"{100 * r.loss_gap:.3f}"),
    ]
    return table(
        f"{first.problem}: {first.n_rows:,} × {first.n_features:,}, {first.family}; an iteration",
        columns,
        rows,
        "×: speed over that contender. from fp64: distance of the weights from SGD in float64 after 512 iterations, "
        "relative. loss gap: above that of graphed fp32 SGD after an epoch on the same batches.",
    )
