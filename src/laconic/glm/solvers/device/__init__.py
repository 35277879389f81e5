"""The solvers on a GPU: the same iterates, by fused kernels that leave nothing to the host between callbacks."""

from laconic.glm.solvers.device.choice import DeviceSolver, device_solver

__all__ = ["DeviceSolver", "device_solver"]
