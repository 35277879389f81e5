"""Nine choices of precision, and recipes: names over nine choices."""

from dataclasses import dataclass, fields, replace
from operator import attrgetter

import torch

from laconic.codec import Codec
from laconic.errors import InvalidOption, Option
from laconic.kernels.formats import FORMAT_OF, FORMATS, Format, format_named

AUTO = "auto"
STORED = ("fp64", "fp32", "bf16", "fp16")
"""What a matrix can be stored in, and an AllReduce carry."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What each quantity of CA-SGD is rounded to; every knob is independent of the others.

    data             stored input matrix
    margin           margin vector v = Y x, each rank's part and the sum
    gram_operand     operands of the Gram product Y Yᵀ
    gram_accumulate  its accumulator
    gram_wire        what the AllReduce carries: a format, which then rounds the margins in the same message too, or
                     a `Codec` for the Gram matrix alone
    recurrence       inner correction: G, its coefficients and the corrected margins
    residual         link function and residual
    update           operands of the product Yᵀp
    weights          master weights x

    >>> Precision(data="bf16", margin="bf16", gram_operand="bf16").short_name()
    'C'
    >>> Precision(data="fp16").short_name()
    'fp32 data=fp16'
    """

    data: str = "fp32"
    margin: str = "fp32"
    gram_operand: str = "fp32"
    gram_accumulate: str = "fp32"
    gram_wire: "str | Codec" = "fp32"
    recurrence: str = "fp32"
    residual: str = "fp32"
    update: str = "fp32"
    weights: str = "fp32"

    def __post_init__(self) -> None:
        for knob in KNOBS:
            value = getattr(self, knob)
            if knob == "gram_wire" and isinstance(value, Codec):
                continue
            if not isinstance(value, str):
                raise TypeError(f"{knob} must be the name of a number format, got {value!r}")
            format_named(value)
        if isinstance(self.gram_wire, str) and self.gram_wire not in STORED:
            raise ValueError(
                f"gram_wire={self.gram_wire!r} cannot go over a wire; choose one of {', '.join(STORED)} or a Codec"
            )
        if self.data not in STORED:
            raise ValueError(f"data={self.data!r} cannot be stored; choose one of {', '.join(STORED)}")
        if not self.format("gram_accumulate").holds(self.format("gram_operand")):
            raise ValueError(
                f"gram_accumulate={self.gram_accumulate!r} is less precise than gram_operand={self.gram_operand!r}; "
                f"set gram_accumulate={self.gram_operand!r} or lower gram_operand"
            )

    def format(self, knob: str) -> Format:
        """The format of a knob; that of a codec's wire is float32."""
        return FORMATS.get(getattr(self, knob), FORMATS["fp32"])

    @property
    def carrier(self) -> torch.dtype:
        """What the arithmetic runs in: float64 where any knob asks for it, otherwise float32."""
        return torch.float64 if "fp64" in _values(self) else torch.float32

    def is_plain(self, *knobs: str) -> bool:
        """Whether these knobs round to nothing less than the carrier."""
        return {*map(self.format, knobs)} == {FORMAT_OF[self.carrier]}

    def short_name(self) -> str:
        """The recipe's name, or the nearest recipe's with what differs from it."""
        names: list[list[str]] = []
        for name, recipe in RECIPES.items():
            if recipe == self:
                return name
            knobs = zip(KNOBS, _values(self), _values(recipe), strict=True)
            names.append([name, *(f"{knob}={own}" for knob, own, other in knobs if own != other)])
        nearest = min(names, key=len)
        return " ".join(nearest)


@dataclass(frozen=True, slots=True)
class ChosenRecipe:
    """A recipe, and why it is that one."""

    precision: Precision
    explained: str


KNOBS = tuple(field.name for field in fields(Precision))
"""In the order in which an outer iteration meets them."""
_values = attrgetter(*KNOBS)

_C = replace(Precision(), data="bf16", margin="bf16", gram_operand="bf16")
RECIPES: dict[str, Precision] = {
    "fp32": Precision(),
    "fp64": Precision(**dict.fromkeys(KNOBS, "fp64")),
    "C": _C,
    "D": replace(_C, gram_wire="bf16", update="bf16"),
}
"""C is fixed by the paper's summary; what D lowers beyond C is our reading of it."""


def recipe(name: "str | Precision") -> Precision:
    """A recipe by name; a `Precision` of one's own is its own recipe.

    >>> recipe("D").update
    'bf16'
    """
    if isinstance(name, Precision):
        return name
    if name not in RECIPES:
        known = f"; choose one of {', '.join(RECIPES)}, auto, auto:1e-3"
        raise InvalidOption("unknown ", Option("recipe", name), known)
    return RECIPES[name]


def is_auto(name: "str | Precision") -> bool:
    """Whether a recipe is ours to choose: "auto", or "auto:" and a tolerance."""
    return isinstance(name, str) and (name == AUTO or name.startswith("auto:"))


def tolerance_of(name: str) -> float:
    """What "auto:1e-3" asks for.

    >>> tolerance_of("auto:1e-3")
    0.001
    """
    try:
        tolerance = float(name.removeprefix("auto:"))
    except ValueError:
        tolerance = 0.0
    if not 0 < tolerance < 1:
        what = ": after 'auto:' comes the largest error of an outer iteration as a share of its step, "
        raise InvalidOption(Option("recipe", name), what, "between 0 and 1, such as 'auto:1e-3'")
    return tolerance


def precision_for(asked: "str | Precision", dtype: torch.dtype) -> Precision:
    """The recipe asked for; one that is ours to choose begins with what X came in.

    float64 is computed with in float64, as scikit-learn does; bfloat16 stays so in memory, and everything else is
    float32.

    >>> precision_for("auto", torch.float64).short_name(), precision_for("auto", torch.bfloat16).short_name()
    ('fp64', 'fp32 data=bf16')
    """
    if not is_auto(asked):
        return recipe(asked)
    if dtype == torch.bfloat16:
        return replace(RECIPES["fp32"], data="bf16")
    return RECIPES["fp64" if dtype == torch.float64 else "fp32"]
