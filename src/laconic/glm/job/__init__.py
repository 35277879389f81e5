"""A fit from a file to a model, as `laconic fit` runs it on each rank."""

from laconic.glm.job.rank import fit, run
from laconic.glm.job.source import Source, rows_for
from laconic.glm.job.task import Task

__all__ = ["Source", "Task", "fit", "rows_for", "run"]
