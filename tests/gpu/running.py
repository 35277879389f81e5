"""Checks that a process of its own runs: Triton decides at its import whether to interpret, and compiling takes long.

A script with tables of checks ends in `main({"cpu": interpreted, "cuda": compiled})`; `run(script, device)` starts it
and collects its lines.
"""

import os
import subprocess
import sys
import traceback
from dataclasses import replace
from functools import cache

import numpy as np


def run(script, device, parts=1, names=()):
    """The outcome of every check of a device's table by its name, or of some of them, by as many processes."""
    path, interprets = os.pathsep.join(filter(None, sys.path)), "1" if device == "cpu" else "0"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": interprets, "PYTHONPATH": path}
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


def interpret_faster():
    """Spare Triton's interpreter half of its work, which changes nothing.

    It patches `tl` at every call of a device function, where once each is enough; it looks for overflow of integers and
    throws the outcome away; it builds a table for every type that it looks up.
    """
    from triton.runtime import interpreter

    patched, usual = set(), interpreter._get_np_dtype
    builder, of_scalars = interpreter.interpreter_builder, cache(usual)

    def call(self, *args, **kwargs):
        if self.fn not in patched:
            patched.add(self.fn)
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call
    interpreter._get_np_dtype = lambda dtype: usual(dtype) if dtype.scalar.is_ptr() else of_scalars(dtype.scalar)
    builder.options = replace(builder.options, sanitize_overflow=False)


def main(tables):
    """Run a part of a device's table, as the command line says; one line per check."""
    device, part, parts, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), set(sys.argv[4:])
    if device == "cpu":
        interpret_faster()
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
