"""A fit on a GPU: the choice of its kernels, and what drives them."""

import torch

from laconic.glm.columns import DenseColumns
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.solvers.objective import Advance
from laconic.glm.solvers.state import State


def device_solver(problem: Problem, options: FitOptions, state: State, wire: Wire) -> tuple[Advance, str] | None:
    """The fused kernels, with memory of their own on the device, and their name; None for plain torch there."""
    if not suits(problem, options, wire):
        return None
    from laconic.glm.solvers.device.blocks import Blocks  # Triton is loaded where it is first needed
    from laconic.glm.solvers.device.iterations import Iterations

    sgd = options.solver == "sgd"
    solver = Iterations(problem, options, state) if sgd else Blocks(problem, options, state, wire)
    return solver.advance, solver.name


def suits(problem: Problem, options: FitOptions, wire: Wire) -> bool:
    """Whether the fused kernels know all that was asked for.

    Everywhere: dense columns on a CUDA device or in pinned memory beside one, float32 arithmetic, margins in float32 or
    bfloat16, residuals, recurrence and weights in float32.

    `sgd`: one process, one output, and a batch that one multiprocessor can hold (2¹⁴ numbers).
    `ca_sgd`: no momentum, no average, an AllReduce in a number format, and a block that one multiprocessor can hold.
    In one process, where s only cuts up the work, blocks that would not fit are made smaller.
    """
    if problem.columns.device.type != "cuda" or not is_supported(problem, options):
        return False
    from laconic.glm.solvers.device.blocks import Blocks
    from laconic.glm.solvers.device.iterations import Iterations

    known: bool = (Iterations if options.solver == "sgd" else Blocks).suits(problem, options, wire)
    return known


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
