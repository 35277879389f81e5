"""Checks that a process of its own runs: Triton decides at its import whether to interpret, and compiling takes long.

A script with tables of checks ends in `main({"cpu": interpreted, "cuda": compiled})`; `run(script, device)` starts it
and collects its lines.
"""

import os
import subprocess
import sys
import traceback

import numpy as np


def run(script, device, parts=1, names=()):
    """The outcome of every check of a device's table by its name, or of some of them, by as many processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1" if device == "cpu" else "0"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), device, str(part), str(parts), *names],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for part in range(parts)
    ]
    lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    return dict(line.split("\t", 1) for line in lines)


def n_processes():
    """For checks that compile."""
    return max(1, min(12, (os.cpu_count() or 1) - 2))


def once_a_launch():
    """Triton's interpreter patches `tl` again at every call of a device function of ours; once per launch is enough."""
    from triton.runtime.interpreter import InterpretedFunction

    usual = InterpretedFunction.__call__

    def call(self, *args, **kwargs):
        ours = self.fn.__module__.startswith("laconic.")
        return self.rewrite()(*args, **kwargs) if ours else usual(self, *args, **kwargs)

    InterpretedFunction.__call__ = call


def main(tables):
    """Run a part of a device's table, as the command line says; one line per check."""
    device, part, parts, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), set(sys.argv[4:])
    if device == "cpu":
        once_a_launch()
    for name, (check, *arguments) in list(tables[device]().items())[part::parts]:
        if names and name not in names:
            continue
        try:
            with np.errstate(all="ignore"):
                check(device, *arguments)
            outcome = "ok"
        except Exception:  # noqa: BLE001 (each check is a test of its own)
            outcome = traceback.format_exc().replace("\n", " | ")
        print(f"{name}\t{outcome}", flush=True)  # noqa: T201
