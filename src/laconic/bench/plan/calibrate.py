"""A calibration of ranks on this machine, or of torchrun's."""

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from laconic.bench.environment import Environment
from laconic.exchange.launch import Host, RankFailed, inside_torchrun, join_ranks, start_ranks
from laconic.planner.calibrate import find_device
from laconic.planner.calibration import Calibration, CalibrationFailed

RANK_FUNCTION = "laconic.bench.plan.rank:calibrate_on_rank"
TIMEOUT_SECONDS = 180.0
N_PARTS = 18
"""Steps of a progress bar."""
MOST_RANKS = 64


def calibrate_here(
    ranks: int, device: str = "cpu", tell: Callable[[str], None] = lambda label: None, function: str = RANK_FUNCTION
) -> Calibration | None:
    """Measure with all ranks at work at once; None on the ranks of torchrun other than the first.

    `CalibrationFailed` says in one line which rank did not answer; `ValueError` what was asked for wrongly.
    """
    find_device(device)
    arguments: dict[str, Any] = {"machine": asdict(Environment.here()), "device": device}
    if inside_torchrun():
        arguments["ranks_here"] = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        results = join_ranks(function, arguments, timeout_seconds=TIMEOUT_SECONDS)
    elif not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"from 1 to {MOST_RANKS} ranks can be started here, got {ranks}; plan for more from a file")
    else:
        try:
            results = start_ranks(function, arguments, [Host()] * ranks, timeout_seconds=TIMEOUT_SECONDS, tell=tell)
        except RankFailed as error:
            first, *rest = str(error).splitlines()
            raise CalibrationFailed(f"calibration failed: {first}{' ' + rest[-1].strip() if rest else ''}") from error
    return None if results is None else Calibration.from_json(results[0])
