"""A line an epoch, for `verbose`."""

from laconic.glm.solvers import Progress


class Telling:
    """Prints the row of `history` at the end of every epoch.

    max_iter  epochs at most
    """

    def __init__(self, max_iter: int) -> None:
        self.max_iter = max_iter

    def __call__(self, progress: Progress) -> None:
        if progress.fraction < 1:
            return
        row = progress.state.history[-1]
        parts = [f"loss {row['loss']:.6g}", f"objective {row['objective']:.6g}"]
        if "validation_loss" in row:
            parts.append(f"validation {row['validation_loss']:.6g}")
        parts += [f"eta {row['eta']:.3g}", f"{row['seconds']:.1f} s"]
        print(f"epoch {progress.epoch + 1} of {self.max_iter}: " + ", ".join(parts), flush=True)  # noqa: T201
