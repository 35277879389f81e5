"""`laconic bench glm --device cuda`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from laconic.cli import fit_options as o
from laconic.cli.bench.options import numbers, refuse
from laconic.cli.bench.running import Found, Tell
from laconic.cli.errors import BadInput

if TYPE_CHECKING:
    from laconic.bench.glm.device import DeviceOptions

RACE = ("rows", "file_size")
"""Options that only --time-to has."""
OF_FILES = ("family", "target", "positive", "weight", "offset", "exposure", "one_hot", "drop", "dense", "standardize")
"""Options about --data."""


def device_options(given: dict[str, Any]) -> "DeviceOptions":
    """From the options of `laconic bench glm`."""
    from laconic.bench.glm.device import DeviceOptions
    from laconic.bench.glm.device_data import DEVICE_SHAPES

    if given["data"] is not None or given["ranks"] not in (None, 1) or given["rate"] is not None:
        raise BadInput("--device is for synthetic problems in one process; leave --data, --ranks and --rate out")
    refuse(given, RACE, "is for --time-to")
    refuse(given, OF_FILES, "is for files, and --device for synthetic problems")
    names = list(o.names(given["problem"] or "all"))
    return DeviceOptions(
        problems=list(DEVICE_SHAPES) if names == ["all"] else names,
        device=given["device"],
        scale=given["scale"] if given["scale"] is not None else 1.0,
        s=numbers(given["s"] or "8,16,32"),
        batch_size=given["batch_size"] or 32,
        iterations=given["iterations"] or 8192,
        repeats=given["repeats"],
        recipes=o.names(given["recipes"] or "fp32,C,D"),
    )


def on_device(options: "DeviceOptions", tell: Tell) -> Found:
    """Run the suite."""
    from laconic.bench.glm import device as suite
    from laconic.bench.glm import device_goals as goals
    from laconic.cli.bench import glm_device_tables as tables

    rows = suite.device_rows(options, tell)
    outcomes = goals.device_outcomes(rows)
    said = {"options": asdict(options)}
    return Found(rows, outcomes, goals.SETTING, lambda here: tables.page(rows, outcomes, options, here), said)
