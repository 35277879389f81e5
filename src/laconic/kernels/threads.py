"""One small pool of threads, for kernels and products that release the GIL.

Numba's own `parallel=True` brings a second thread runtime that is not safe under concurrent callers (autograd runs
communication hooks on its own threads) nor after a fork (data loaders). Plain threads over `nogil` kernels are safe,
and they follow `torch.set_num_threads`, so a rank told to use one thread uses one.

Libraries that share their work among threads of their own make every thread wait for the slowest after each operator:
on a machine with other work to do, or beside another library's threads, for many times as long. Work in
blocks of rows is shared among threads of this pool instead, block by block (`in_order`), while libraries compute on the
calling thread alone (`serial_libraries`).
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_pools: dict[int, ThreadPoolExecutor] = {}


def _after_fork() -> None:
    """In a forked child, drop the parent's pools, and set torch to one thread: with more, its next operator on many
    values would wait for threads that only the parent has. The child may set more again."""
    _pools.clear()
    torch.set_num_threads(1)


os.register_at_fork(after_in_child=_after_fork)


def _pool(n_threads: int) -> ThreadPoolExecutor:
    """A pool of threads on each of which torch uses one thread. Setting that also affects threads that start later:
    hence all start at once, and then the caller's own number is restored."""
    pool = _pools.get(n_threads)
    if pool is None:
        own, begun = torch.get_num_threads(), threading.Barrier(n_threads)

        def begin() -> None:
            torch.set_num_threads(1)
            begun.wait()

        pool = ThreadPoolExecutor(n_threads, thread_name_prefix="laconic", initializer=begin)
        wait([pool.submit(int) for _ in range(n_threads)])
        torch.set_num_threads(own)
        pool = _pools.setdefault(n_threads, pool)
    return pool


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
    pool = _pool(n_threads)
    futures = [pool.submit(kernel, first, last) for first, last in ranges[1:]]
    kernel(*ranges[0])
    for future in futures:
        future.result()


def in_order(work: Callable[[T], R], items: Sequence[T], n_threads: int) -> Iterator[R]:
    """work(item) of each item, in their order, with up to `n_threads` of them at work at once.

    >>> list(in_order(abs, [-2, 1, -3], 2))
    [2, 1, 3]
    """
    if n_threads == 1 or len(items) <= 1:
        yield from map(work, items)
        return
    inference, pool = torch.is_inference_mode_enabled(), _pool(n_threads)

    def one(item: T) -> R:
        with torch.inference_mode(inference):  # a setting of each thread
            return work(item)

    ahead: deque[Future[R]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(one, item))
            if len(ahead) == 2 * n_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()
        wait(ahead)


class _SerialProducts:
    """Limits NumPy's products to one thread while any thread is inside; threads may enter and leave in any order.

    Without threadpoolctl, which scikit-learn installs, the products keep their own number of threads.
    """

    def __init__(self) -> None:
        self.lock, self.n_users = threading.Lock(), 0
        self.limit: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> None:
        with self.lock:
            if self.n_users == 0:
                self.limit = _limit()
                self.limit.__enter__()
            self.n_users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0:
                self.limit.__exit__(None, None, None)


_serial_products = _SerialProducts()


def _limit() -> AbstractContextManager[Any]:
    limit: AbstractContextManager[Any] = nullcontext() if (found := _blas()) is None else found.limit(limits=1)
    return limit


@cache
def _blas() -> Any:
    """The loaded BLAS libraries. Cached, since looking for them takes some milliseconds."""
    if find_spec("threadpoolctl") is None:
        return None
    return import_module("threadpoolctl").ThreadpoolController().select(user_api="blas")


@contextmanager
def serial_libraries() -> Iterator[int]:
    """Inside, torch's operators, NumPy's products and `run` use the calling thread alone.

    Yields how many threads torch had before, for `in_order`: 1 inside of another such block.

    >>> with serial_libraries() as n_threads:
    ...     torch.get_num_threads()
    1
    """
    n_threads = torch.get_num_threads()
    with _serial_products:
        torch.set_num_threads(1)
        try:
            yield n_threads
        finally:
            torch.set_num_threads(n_threads)
