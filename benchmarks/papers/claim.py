"""What a paper says, beside what was measured here."""

from dataclasses import dataclass

CA_SGD = 'summary of "Mixed-Precision Communication-Avoiding SGD for Generalized Linear Models on GPUs"'
NUQSGD = "Ramezani-Kebrya et al. 2021, NUQSGD, JMLR 22(114)"


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure.

    what       it is of
    published  the paper's: a number, or words where it gives none
    measured   ours; None where this run does not tell
    source     where in the paper
    unit       of both numbers
    holds      whether ours bears it out; None where the two cannot be compared
    problem    that it is about, if it is about one
    note       what differs
    """

    what: str
    published: float | str | None
    measured: float | str | None
    source: str
    unit: str = ""
    holds: bool | None = None
    problem: str | None = None
    note: str = ""
