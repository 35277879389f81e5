"""Threads of an exchange wake up without driving others off their core; nobody else's are touched."""

import os
import threading

import pytest

from laconic.exchange import Communicator, Pipeline
from laconic.exchange.channel import yielding_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="needs Linux")


def policies_of_new_threads(group):
    """Scheduling policies of this thread before and after, and of the threads that an exchange starts."""
    before, others = os.sched_getscheduler(0), set(os.listdir("/proc/self/task"))
    comm = Communicator.open(group)
    pipeline = Pipeline(comm)
    new = {os.sched_getscheduler(int(task)) for task in set(os.listdir("/proc/self/task")) - others}
    pipeline.close()
    comm.close()
    return before, os.sched_getscheduler(0), new


def test_threads_of_an_exchange(pool):
    for before, after, new in pool.run(policies_of_new_threads, 4):
        assert before == after == os.SCHED_OTHER
        assert new == {os.SCHED_BATCH}


def test_the_calling_thread_is_as_before_after_an_error():
    def fail():
        with yielding_threads():
            assert os.sched_getscheduler(0) == os.SCHED_BATCH
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_sandbox_that_forbids_it_is_no_matter(monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    seen = []
    with yielding_threads():
        thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
    assert seen == [os.SCHED_OTHER]
