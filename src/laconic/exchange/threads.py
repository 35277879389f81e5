"""How the threads of an exchange share cores with the rest of the program."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Threads started in this block wake up without driving others off their core; the calling thread is as before.

    Gloo's thread polls, without sleeping, while another thread of the process holds the lock of a connection that has
    news. If it took that thread's core when it woke up, it would poll for the rest of its time slice, milliseconds,
    and the other could not let go of the lock. Likewise for whoever else drives off a thread that holds the lock.
    Where a core is free this changes nothing, nor where the system has no such threads (`SCHED_BATCH` of Linux, which
    a thread inherits from the one that starts it).
    """
    changed = _set_scheduler("SCHED_BATCH") if _is_ordinary() else False
    try:
        yield
    finally:
        if changed:
            _set_scheduler("SCHED_OTHER")


def _is_ordinary() -> bool:
    return hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER


def _set_scheduler(name: str) -> bool:
    """Of the calling thread; whether it could be set, for some sandboxes do not allow it."""
    try:
        os.sched_setscheduler(0, getattr(os, name), os.sched_param(0))
    except OSError:
        return False
    return True
