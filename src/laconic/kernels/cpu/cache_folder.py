"""The folder that Numba keeps compiled kernels in.

Numba tries NUMBA_CACHE_DIR, the folder of the source and the user's cache. In a container with a read-only file system
it finds none, and refuses to make the kernels at all: hence this module is imported before the first kernel.
"""

from numba import njit

from laconic.errors import BackendUnavailable


def require_folder() -> None:
    """Raises `BackendUnavailable` if Numba finds no folder, and says what to set."""
    try:
        njit(cache=True)(_kernel)
    except RuntimeError as error:
        raise BackendUnavailable(
            "Numba finds no folder to keep compiled kernels in, for neither this package's nor the user's cache can be "
            "written to; set NUMBA_CACHE_DIR to one that can"
        ) from error


def _kernel(x):
    return x


require_folder()
