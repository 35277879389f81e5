"""Targets as they come, to targets as families want them."""

import torch

from laconic.data import BadTable
from laconic.glm.families import FAMILIES
from laconic.glm.model import CLASSIFIERS, Label

CHUNK = 1 << 16
"""Values looked at together, so that no copy of all of y is made."""
MANY = 1000
"""More classes than anyone means."""


def choose_family(asked: str | None, values: "tuple[Label, ...] | None") -> str:
    """The family that was asked for; logistic where y has two values; otherwise a complaint that says what to type.

    values  distinct values of y in order; None where there are too many to be classes

    >>> choose_family(None, (-1, 1)), choose_family("poisson", None)
    ('logistic', 'poisson')
    """
    n = None if values is None else len(values)
    if asked is None:
        if n == 2:
            return "logistic"
        if values is not None and isinstance(values[0], str):
            return "multinomial"
        count = f"more than {MANY}" if n is None else n
        raise BadTable(
            f"y has {count} distinct value{'' if n == 1 else 's'}: give --family linear (numbers), poisson (counts) "
            "or multinomial (classes)"
        )
    if asked not in FAMILIES:
        raise ValueError(f"unknown family {asked!r}; choose one of {', '.join(FAMILIES)}")
    if asked in CLASSIFIERS and (n is None or n < 2):
        raise BadTable(
            f"{asked}: y has {f'more than {MANY}' if n is None else n} distinct values, which are no classes"
        )
    if asked == "logistic" and values is not None and n != 2:
        raise BadTable(f"logistic: y has {n} classes ({_some(values)}); use --family multinomial")
    if asked not in CLASSIFIERS and values is not None and isinstance(values[0], str):
        raise BadTable(f"{asked}: y is text ({_some(values)}), not numbers")
    return asked


def distinct(y: torch.Tensor, classes: "tuple[str, ...] | None") -> "tuple[Label, ...] | None":
    """The values of y in order, or None where they are more than `MANY`; codes of text are that text."""
    if classes is not None:
        return tuple(classes)
    found: set[Label] = set()
    for first in range(0, len(y), CHUNK):
        found.update(torch.unique(y[first : first + CHUNK]).tolist())
        if len(found) > MANY:
            return None
    return tuple(sorted(found))


def codes(
    y: torch.Tensor,
    labels: "tuple[str, ...] | None",
    classes: tuple[Label, ...],
    dtype: torch.dtype,
    first_row: int = 0,
) -> torch.Tensor:
    """Each label's number among the classes; `BadTable` names a label that is none of them.

    labels     what the codes in y stand for, where the file has text
    first_row  the number of y[0] in the file, counted from 0

    >>> codes(torch.tensor([1, -1, 1]), None, (-1, 1), torch.float32)
    tensor([1., 0., 1.])
    """
    if labels is not None:
        place = {label: j for j, label in enumerate(classes)}
        unknown = [label for label in labels if label not in place]
        if unknown:
            raise BadTable(f"label {unknown[0]!r} is not one of the model's classes: {_some(classes)}")
        table = torch.tensor([place[label] for label in labels], dtype=dtype)
        return table[y.long()]
    if isinstance(classes[0], str):
        raise BadTable(f"labels are numbers, and the model's classes are text: {_some(classes)}")
    known = torch.tensor(classes, dtype=torch.float64)
    result = torch.empty(len(y), dtype=dtype)
    for first in range(0, len(y), CHUNK):
        part = y[first : first + CHUNK].double()
        found = torch.searchsorted(known, part).clamp(max=len(known) - 1)
        if not torch.equal(known[found], part):
            row = int((known[found] != part).int().argmax())
            raise BadTable(
                f"label {part[row].item():g} in row {first_row + first + row + 1} is not one of the model's classes: "
                f"{_some(classes)}"
            )
        result[first : first + CHUNK] = found.to(dtype)
    return result


def _some(values: tuple[Label, ...]) -> str:
    return ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
