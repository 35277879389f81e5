"""The solvers on a GPU: the same iterates, by kernels that leave nothing to the host between callbacks."""

from laconic.glm.solvers.device.choose import DeviceSolver, device_solver

__all__ = ["DeviceSolver", "device_solver"]
