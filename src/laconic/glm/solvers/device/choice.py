"""The choice of kernels for a fit on a GPU."""

from typing import Protocol

import torch

from laconic.glm.columns import DenseColumns
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.solvers.state import Segment, State


class DeviceSolver(Protocol):
    """A solver bound to one state, with its own memory on the device."""

    name: str

    def advance(self, segment: Segment) -> float:
        """Step through a segment, changing the state's weights; returns Σ w φ."""


def device_solver(problem: Problem, options: FitOptions, state: State, wire: Wire) -> DeviceSolver | None:
    """The fused kernels, where they know all that was asked for; None for plain torch on the device.

    Everywhere: dense columns on a CUDA device or in pinned memory beside one, float32 arithmetic, margins in float32 or
    bfloat16, residuals, recurrence and weights in float32.

    `sgd`: one process, one output, and a batch that one multiprocessor can hold (2¹⁴ numbers).
    `ca_sgd`: no momentum, no average, an AllReduce in a number format, and a block that one multiprocessor can hold.
    In one process, where s only cuts up the work, blocks that would not fit are made smaller.
    """
    if problem.columns.device.type != "cuda" or not is_supported(problem, options):
        return None
    from laconic.glm.solvers.device.blocks import Blocks  # Triton is loaded where it is first needed
    from laconic.glm.solvers.device.iterations import Iterations

    if options.solver == "sgd":
        return Iterations(problem, options, state) if Iterations.suits(problem, options, wire) else None
    return Blocks(problem, options, state, wire) if Blocks.suits(problem, options, wire) else None


def is_supported(problem: Problem, options: FitOptions) -> bool:
    """Whether matrix, family and precision are ones that the kernels know."""
    p, columns = options.precision, problem.columns
    return (
        isinstance(columns, DenseColumns)
        and columns.n > 0
        and columns.X.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and p.carrier == torch.float32
        and problem.family.kernel_code is not None
        and p.is_plain("recurrence", "residual", "weights")
        and p.margin in ("fp32", "bf16")
    )
