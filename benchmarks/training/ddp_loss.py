"""The suite `ddp-loss`: effect of the codecs of the suite `ddp` on the loss, over hundreds of steps and several seeds.

A loss does not depend on the link, so no ranks are needed: workers are simulated, with the runs, rows and tables of the
suite `training`. The network is small enough for one core: scikit-learn's digits of 8 by 8 pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training.suite import PRESENTATION as TRAINING
from benchmarks.training.suite import TrainingOptions, training_rows
from laconic.bench.suite import Suite
from laconic.options import option
from laconic.report import Presentation

MEMBERS = (
    *("fp32", "nuqsgd-4/8192", "nuqsgd-4/512", "bf16", "qsgdinf-8/8192", "ef-sign", "dithered-1"),
    *("nuqsgd-2/8192", "qsgd-4/8192", "nuqsgd-8/8192", "dithered-0.1", "rotated-2", "rotated-4"),
)
"""Codecs of `ddp`, the most informative first; entropy coders are left out, since they do not change the loss."""


@dataclass(frozen=True, slots=True)
class DDPLossOptions(TrainingOptions):
    """Options of the suite `training`, with other defaults."""

    tasks: Sequence[str] = option(("cnn-sgd",), "Of `training`; cnn-sgd.", flag="--task", metavar="NAME,...")
    members: Sequence[str] | None = option(
        MEMBERS, "Members, such as fp32,nuqsgd-4/512; the codecs of ddp.", flag="--member", metavar="NAME,..."
    )
    workers: Sequence[int] = option((4,), "Simulated workers; 4.", metavar="N,...")
    steps: int = option(500, "Steps.")
    batch_size: int | None = option(8, "Of a worker.")
    width: int = option(64, "A multiple of 32; the convolutional network's is a quarter.")
    out: Path = option(Path("runs/ddp-loss"), "Folder of finished runs, which are not run again.", metavar="DIR")  # noqa: RUF009


PRESENTATION = Presentation("The loss under each codec", TRAINING.parts, TRAINING.about)
SUITE = Suite(
    "ddp-loss",
    DDPLossOptions,
    training_rows,
    """What the codecs of ddp do to the loss: 500 steps, 5 seeds, simulated workers.

    Takes some minutes of one core. Each run is a file in the folder of --out, and is not run again: the same
    command goes on where the last one stopped, and its document has all that is there.
    """,
)
