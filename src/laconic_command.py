"""The command `laconic` from its first moment: Ctrl-C is one line while the package is still being loaded, too.

It stands beside the package, for whatever is inside it loads torch first, which takes a second or more.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""The exit code, as `laconic.cli.main` has it."""


def main() -> int:
    """Load `laconic.cli` and run it; the exit code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # where the shell ignores Ctrl-C, so do we
        signal.signal(signal.SIGINT, _interrupted)
    from laconic.cli import main as run

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    return run()


def _interrupted(number: int, frame: FrameType | None) -> None:
    """An exception would end up in whatever import it meets, some of which take it for a library that is not there."""
    os.write(2, b"laconic: interrupted\n")
    os._exit(INTERRUPTED)
