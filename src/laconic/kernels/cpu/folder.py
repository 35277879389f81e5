"""Where Numba keeps compiled kernels: a folder that it may write to, asked for before the first kernel is made.

Numba tries NUMBA_CACHE_DIR, the folder of the source and the user's cache. In a container whose file system may only be
read it finds none, and refuses to make the kernels at all.
"""

from numba import njit

from laconic.errors import BackendUnavailable


def require_folder() -> None:
    """`BackendUnavailable` where there is none, with what to set."""
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
