"""What a fit from the command line is told."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from laconic.exchange import Communicator
from laconic.glm.auto_recipe import is_auto, tolerance_of
from laconic.glm.automatic import auto_eta0, auto_s, pays_in_blocks
from laconic.glm.job.source import Source
from laconic.glm.penalty import Penalty
from laconic.glm.precision import Precision, recipe
from laconic.glm.problem import Problem
from laconic.glm.sampling import Sampling
from laconic.glm.schedule import schedule
from laconic.glm.solvers import Settings


@dataclass(frozen=True, slots=True)
class Task:
    """All of a fit, as JSON values.

    data, test        rows to fit to, and rows to judge by
    output            file of the model
    family            or None to choose
    standardize       scale columns before fitting; the model is in original units all the same
    recipe            by name, or "auto" or "auto:1e-3"; see `glm.auto_recipe`
    solver, s, eta0   or None to choose: SGD where s is 1; see `glm.automatic` for the others
    device            "cpu", "cuda", or "auto": a GPU where one can be used
    checkpoint        folder, or None
    resume            go on from the checkpoint there, if there is one
    """

    data: Source
    output: str
    test: str | None = None
    family: str | None = None
    standardize: bool = False
    recipe: str = "fp32"
    solver: str | None = None
    s: int | None = None
    batch_size: int = 32
    alpha: float = 1e-4
    l1_ratio: float = 0.0
    intercept: bool = True
    eta0: float | None = None
    learning_rate: str = "adaptive"
    momentum: float = 0.0
    max_iter: int = 100
    tol: float | None = 1e-4
    seed: int = 0
    device: str = "cpu"
    checkpoint: str | None = None
    checkpoint_every: float = 300.0
    resume: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Task":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**values, "data": Source(**values["data"])})

    @property
    def precision(self) -> Precision:
        """To read the data in; of a recipe that is found on it, the widest that may be found."""
        if not is_auto(self.recipe):
            return recipe(self.recipe)
        return recipe("fp32" if tolerance_of(self.recipe) is None else "fp64")

    def settings(self, n_ranks: int) -> Settings:
        """Hyperparameters, with what can be chosen before the data is known chosen; `ValueError` for what is wrong."""
        sampling = Sampling(batch_size=self.batch_size, seed=self.seed)
        s = self.s or (1 if self.solver == "sgd" else auto_s(self.batch_size, n_ranks))
        return Settings(
            solver=self.solver or ("sgd" if s == 1 else "ca_sgd"),
            s=s,
            sampling=sampling,
            schedule=schedule(self.learning_rate, self.eta0 or 1.0),
            penalty=Penalty(self.alpha, self.l1_ratio),
            fit_intercept=self.intercept,
            momentum=self.momentum,
            precision=self.precision,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def for_problem(self, settings: Settings, problem: Problem, comm: Communicator) -> Settings:
        """The same with a step size that suits the problem, unless one was given, and on a GPU with a solver that does.

        The step size is cut to three digits, so that it does not depend on the order in which ranks add.
        """
        if self.solver is None and self.s is None and pays_in_blocks(problem, self.batch_size):
            settings = replace(settings, solver="ca_sgd", s=auto_s(self.batch_size, comm.size, on_gpu=True))
        eta0 = float(f"{auto_eta0(problem, settings, comm):.3g}") if self.eta0 is None else self.eta0
        n_iterations = settings.max_iter * settings.sampling.n_batches(problem.n_rows)
        return replace(settings, schedule=schedule(self.learning_rate, eta0, n_iterations=n_iterations))
