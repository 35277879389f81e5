"""The losses that the compiled kernels know, by number."""

from enum import IntEnum


class LinkCode(IntEnum):
    """The number by which a kernel knows a family's loss φ(z, y) and its derivative.

    Part of the compiled kernels' interface: a member's number never changes. MULTINOMIAL has C outputs, all others one.
    """

    GAUSSIAN = 0
    BERNOULLI = 1
    MULTINOMIAL = 2
    POISSON = 3


def check_link_code(code: int | None, n_outputs: int) -> int:
    """The code as the plain integer that kernels take; raises ValueError unless they know it for so many outputs.

    Every function that launches a kernel calls this first, so that no kernel ever meets a code it does not know.

    >>> check_link_code(LinkCode.POISSON, 1)
    3
    """
    known = ", ".join(f"{member.name} = {member.value}" for member in LinkCode)
    if code is None or code not in LinkCode.__members__.values():
        raise ValueError(f"no kernel knows the link code {code!r}; known are {known}")
    if (code == LinkCode.MULTINOMIAL) != (n_outputs > 1):
        outputs = "several outputs" if code == LinkCode.MULTINOMIAL else "one output"
        raise ValueError(f"the link code {LinkCode(code).name} takes margins of {outputs}, got {n_outputs}")
    return int(code)
