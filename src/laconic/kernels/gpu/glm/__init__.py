"""Triton kernels of CA-SGD and SGD for generalised linear models; `kernels.reference.recurrence` is the specification.

A segment's row numbers lie on the device in the order in which rows are used; a block is `k = s b` of them.
Nothing here synchronises with the host, so a run of launches can be captured in a CUDA graph.
"""

from laconic.kernels.gpu.glm.gather import gather_rows
from laconic.kernels.gpu.glm.gram import GramPlan, gram
from laconic.kernels.gpu.glm.recurrence import gram_buffer, recurrence, recurrence_fits
from laconic.kernels.gpu.glm.sgd import row_buffer, sgd, sgd_fits
from laconic.kernels.gpu.glm.update import MarginPlan, margins, update
