"""The command `laconic` from its first moment: loads the package, with one line for Ctrl-C or a missing dependency.

It stands beside the package, since whatever is inside loads torch first, which takes a second or more.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The exit code, as `laconic.cli.main` has it."""


def main() -> int:
    """Load `laconic.cli` and run it; returns the exit code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # where the shell ignores Ctrl-C, so do we
        signal.signal(signal.SIGINT, _interrupted)
    try:
        from laconic.cli import main as run
    except ImportError as error:
        return _missing(error)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:  # the latter of a terminal that closes
        if signal.getsignal(number) is signal.SIG_DFL and "LOCAL_RANK" not in os.environ:
            signal.signal(number, _terminated)  # ranks of torchrun end at once: others may wait for them
    return run()


def _missing(error: ImportError) -> int:
    from laconic.extras import MissingExtra

    if not isinstance(error, MissingExtra):
        raise error
    sys.stderr.write(f"laconic: {error}\n")
    return 2


def _terminated(number: int, frame: FrameType | None) -> None:
    """Leave as after an error, so that temporary files go and ranks end."""
    raise SystemExit(128 + number)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """End the process: an exception would end in whatever import it meets, and some take it for a missing library."""
    os.write(2, b"laconic: interrupted\n")
    os._exit(INTERRUPTED)
