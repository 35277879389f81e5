"""What each rank does in the suite `glm`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laconic.bench.glm.contenders import Contender
from laconic.bench.glm.data import Given, load
from laconic.bench.glm.lane import Lane, check, look, new_lanes, rounds_of, run_round
from laconic.exchange import Communicator
from laconic.glm import Problem
from laconic.glm.ranks import user_errors

Tell = Callable[[str], None]
Run = Callable[[dict[str, Lane], Problem, Communicator, Tell], None]


def glm_on_rank(
    tell: Tell,
    *,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    iterations: int,
    repeats: int,
) -> dict[str, Any]:
    """All contenders on each problem, round by round in turn; the first round is checked and not timed."""

    def run(lanes: dict[str, Lane], problem: Problem, comm: Communicator, say: Tell) -> None:
        for turn, rows in enumerate(rounds_of(problem.n_rows, 1 + repeats, iterations * batch_size)):
            say(f"round {turn} of {repeats}" if turn else "warm-up and checks")
            run_round(lanes, rows, comm)
            if turn == 0:
                check(lanes, comm.rank)
                for lane in lanes.values():
                    lane.seconds, lane.cpu_seconds = [], []
        look(lanes, problem, comm)

    return on_problems(tell, problems, contenders, batch_size, run)


def on_problems(
    tell: Tell,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    run: Run,
) -> dict[str, Any]:
    """By problem and label what was seen of every contender, after `run` has run them."""
    comm = Communicator.open(n_channels=1)
    everyone = [Contender(**values) for values in contenders]
    found: dict[str, Any] = {}
    try:
        for values in problems:
            given = Given.from_json(values)
            tell(f"{given.name}: reading")
            with user_errors(comm):
                problem, n_features = load(given, comm)
            lanes = new_lanes(problem, comm, everyone, batch_size)
            run(lanes, problem, comm, _saying(tell, given.name))
            found[given.name] = {
                "family": problem.family.name,
                "n_rows": problem.columns.m,
                "n_features": n_features,
                "lanes": {label: lane.found() for label, lane in lanes.items()},
            }
    finally:
        comm.close()
    return found


def _saying(tell: Tell, name: str) -> Tell:
    return lambda label: tell(f"{name}: {label}")
