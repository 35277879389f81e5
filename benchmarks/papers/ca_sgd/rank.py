"""What each rank does in the suite `papers ca-sgd`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laconic.bench.glm.runs import GLMRun, add_losses, compare_with_sgd, on_problems, rounds_of, run_round
from laconic.exchange import Communicator
from laconic.glm import Problem

Tell = Callable[[str], None]


def ca_sgd_on_rank(
    tell: Tell,
    *,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    iterations: int,
    points: int,
) -> dict[str, Any]:
    """All contenders on each problem, the same batches, round by round in turn; their losses at every point."""

    def run(runs: dict[str, GLMRun], problem: Problem, comm: Communicator, say: Tell) -> None:
        say("the start")
        add_losses(runs, problem, comm)
        for turn, rows in enumerate(rounds_of(problem.n_rows, points - 1, iterations * batch_size), start=1):
            say(f"point {turn} of {points - 1}")
            run_round(runs, rows, comm)
            if turn == 1:
                compare_with_sgd(runs, comm.rank)
            add_losses(runs, problem, comm)

    return on_problems(tell, problems, contenders, batch_size, run)
