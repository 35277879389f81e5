"""Measurements on each rank in the suite `plan`: calibrate, then run every option of every problem in turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from laconic.bench.ranks import barrier
from laconic.bench.suite import Progress
from laconic.exchange import Communicator, Pipeline
from laconic.measure.calibrate import calibrate
from laconic.measure.solvers import Contender, SolverRun, noise_problem
from laconic.planner import NetworkOption
from laconic.planner.calibrate import exchange_call, sample_values
from laconic.planner.timing import Stopwatch

NOISE_VALUES = 2**23
MOST_ROWS, LEAST_ROWS = 2**15, 2**10


@dataclass(slots=True)
class _Runner:
    """One option: its call, the iterations per call, the calls per round, and its seconds."""

    run: Callable[[], object]
    iterations: int
    calls: int = 1
    seconds: list[float] = field(default_factory=list)


def plan_on_rank(
    progress: Progress,
    *,
    machine: Mapping[str, Any],
    glm: Sequence[Mapping[str, Any]],
    network: Sequence[Mapping[str, Any]],
    rounds: int,
    round_seconds: float,
) -> dict[str, Any]:
    """The calibration, and for each problem the seconds of each option's rounds on the slowest rank.

    glm      {"n": columns, "b": batch size, "options": [{"solver", "recipe", "s"}]}
    network  {"n": values, "options": [{"codec", "exchange"}]}
    """
    comm = Communicator.open()
    clock = Stopwatch(comm, torch.device("cpu"))
    progress("calibration")
    found = calibrate(comm, machine)
    measured = []
    for problem in glm:
        progress(f"{problem['n']} columns, batches of {problem['b']}")
        measured.append(_measure(clock, _glm_runners(comm, problem), rounds, round_seconds))
    pipeline = Pipeline(comm)
    for problem in network:
        progress(f"{problem['n']} gradients")
        measured.append(_measure(clock, _network_runners(pipeline, clock, problem), rounds, round_seconds))
    pipeline.close()
    comm.close()
    return {"calibration": found.to_json(), "measured": measured}


def _measure(clock: Stopwatch, runners: Mapping[str, _Runner], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of an iteration in each round; options take turns, so that a busy minute affects all of them."""
    for runner in runners.values():
        runner.run()
        first = clock.slowest([_time(clock, runner)])[0]
        runner.calls = max(1, min(200, round(seconds / max(first * runner.iterations, 1e-9))))
    for _ in range(rounds):
        for runner in runners.values():
            barrier(clock.comm)
            runner.seconds.append(_time(clock, runner))
    return {name: clock.slowest(runner.seconds) for name, runner in runners.items()}


def _time(clock: Stopwatch, runner: _Runner) -> float:
    start = time.perf_counter()
    for _ in range(runner.calls):
        runner.run()
    return (time.perf_counter() - start) / (runner.calls * runner.iterations)


def _glm_runners(comm: Communicator, problem: Mapping[str, Any]) -> dict[str, _Runner]:
    n_p = max(1, problem["n"] // comm.size)
    noise = noise_problem(max(LEAST_ROWS, min(MOST_ROWS, NOISE_VALUES // n_p)), n_p)
    runners = {}
    for values in problem["options"]:
        contender = Contender(**values)
        runners[contender.label] = _Runner(*SolverRun.of(contender, noise, problem["b"], comm).rounds())
    return runners


def _network_runners(pipeline: Pipeline, clock: Stopwatch, problem: Mapping[str, Any]) -> dict[str, _Runner]:
    v = sample_values(problem["n"]).roll(pipeline.comm.rank).to(clock.device)
    options = [NetworkOption(**values) for values in problem["options"]]
    calls = {option.label: exchange_call(pipeline, option, v) for option in options}
    return {label: _Runner(partial(call, 0), 1) for label, call in calls.items()}
