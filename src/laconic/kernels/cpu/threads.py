"""One small pool of threads for kernels that release the GIL, and the folder that Numba keeps compiled kernels in.

Numba's own `parallel=True` brings a second thread runtime that is not safe under concurrent callers (autograd runs
communication hooks on its own threads) nor after a fork (data loaders). Plain threads over `nogil` kernels are, and
they follow `torch.set_num_threads`, so a rank told to use one thread uses one.

Numba tries NUMBA_CACHE_DIR, the folder of the source and the user's cache. In a container whose file system may only be
read it finds none, and refuses to make the kernels at all: hence this module is imported before the first kernel.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from numba import njit

from laconic.errors import BackendUnavailable

_pools: dict[int, ThreadPoolExecutor] = {}


def _after_fork() -> None:
    """In a forked child, forget the parent's pools. torch cannot: its next operator on many values would wait for
    threads that only the parent has. With one thread it calls none; a child that knows better may set more."""
    _pools.clear()
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_after_fork)


def split(n_items: int, n_parts: int) -> list[tuple[int, int]]:
    """Cut range(n_items) into at most `n_parts` non-empty, nearly equal ranges.

    >>> split(5, 2), split(1, 4), split(0, 4)
    ([(0, 2), (2, 5)], [(0, 1)], [])
    """
    n_parts = min(n_parts, n_items)
    return [(i * n_items // n_parts, (i + 1) * n_items // n_parts) for i in range(n_parts)]


def run(kernel: Callable[[int, int], object], n_items: int, n_values: int) -> None:
    """Call `kernel(first, last)` over all of range(n_items), on as many threads as torch would use.

    n_values  how much work it is: under 65,536 values a second thread costs more than it brings
    """
    n_threads = torch.get_num_threads() if n_values >= 65536 else 1
    ranges = split(n_items, n_threads)
    if len(ranges) <= 1:
        for first, last in ranges:
            kernel(first, last)
        return
    pool = _pools.get(n_threads)
    if pool is None:
        pool = _pools.setdefault(n_threads, ThreadPoolExecutor(n_threads, thread_name_prefix="laconic"))
    futures = [pool.submit(kernel, first, last) for first, last in ranges[1:]]
    kernel(*ranges[0])
    for future in futures:
        future.result()


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
