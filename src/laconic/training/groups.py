"""Which parameters are compressed (`Policy`), and which are exchanged together (`Group`).

Groups are made once, from the parameters alone. They do not follow DDP's buckets, which change after the first step: so
what is quantised together, and with which random numbers, is the same in every run and after every restart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

import torch

from laconic._version import __version__
from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.options import check_int
from laconic.quantizers import Identity, Quantizer

PLAIN = Codec(Identity("fp32"))
"""The codec of uncompressed groups."""
GROUP_VALUES, CODED_GROUP_VALUES = 2**20, 2**23
"""Default number of values that are exchanged together; and the one for codecs of variable size on a GPU, where a warp
codes a block of values, so that few blocks take as long as many."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which parameters are compressed; the others go in float32.

    min_dims      fewest dimensions: biases and normalisation weights (1-D) are few and sensitive
    min_values    fewest values: a small tensor saves nothing
    warmup_steps  steps in float32 before compression begins
    group_values  values that are exchanged together; smaller groups overlap better, larger ones have fewer messages.
                  By default 2²⁰, or 2²³ on a GPU if the codec's payloads vary in size, as those of `Dithered` do
    codecs        a codec, or None for float32, by pattern of parameters' names. The first match decides, whatever the
                  parameter's size; parameters without a match follow the other rules, with the model's codec
    alone         whether to quantise even where one rank trains alone; otherwise its gradients are left as they are
    verify_every  compare the parameters across ranks every so many steps; 0 never

    >>> Policy(codecs={"embed*": None, "*.weight": "qsgdinf"}).rule("embed.weight", torch.zeros(64, 64))
    False
    """

    min_dims: int = 2
    min_values: int = 1024
    warmup_steps: int = 0
    group_values: int | None = None
    codecs: Mapping[str, Codec | Quantizer | str | None] = field(default_factory=dict, hash=False)
    alone: bool = False
    verify_every: int = 0

    def __post_init__(self) -> None:
        for name in ("min_dims", "min_values", "warmup_steps", "group_values", "verify_every"):
            least, given = int(name == "group_values"), getattr(self, name)
            if given is not None or name != "group_values":
                object.__setattr__(self, name, check_int(name, given, least, owner="policy"))
        if not isinstance(self.codecs, Mapping):
            raise InvalidOption(Option("codecs"), f" must be such as {{'embed*': None}}; got {self.codecs!r}")
        patterns: Iterable[object] = self.codecs
        for pattern in patterns:
            if not isinstance(pattern, str):
                why = f": a pattern of names must be text such as 'embed*'; got {pattern!r}"
                raise InvalidOption(Option("codecs"), why)
        made = {pattern: None if codec is None else codec_for(codec) for pattern, codec in self.codecs.items()}
        object.__setattr__(self, "codecs", made)

    def require_matches(self, names: Iterable[str]) -> None:
        """Raise `InvalidOption` for a pattern of `codecs` that no name of a parameter matches."""
        known = list(names)
        for pattern in self.codecs:
            if known and not any(fnmatchcase(name, pattern) for name in known):
                what = f": its codecs have {pattern!r}, which matches no parameter; names are such as {known[0]!r}"
                raise InvalidOption(Option("policy"), what)

    def compresses(self, parameter: torch.Tensor) -> bool:
        """Whether this parameter's gradient is compressed.

        >>> Policy().compresses(torch.zeros(64, 64)), Policy().compresses(torch.zeros(4096))
        (True, False)
        """
        return parameter.dim() >= self.min_dims and parameter.numel() >= self.min_values

    def rule(self, name: str, parameter: torch.Tensor) -> Codec | bool:
        """The parameter's own codec; True for that of the model, False for float32."""
        own: Any = next((codec for pattern, codec in self.codecs.items() if fnmatchcase(name, pattern)), ...)
        return self.compresses(parameter) if own is ... else own or False

    def values_together(self, codec: Codec, device: torch.device) -> int:
        """The number of values at which a group with this codec is full.

        >>> Policy().values_together(PLAIN, torch.device("cuda"))
        1048576
        """
        if self.group_values is not None:
            return self.group_values
        return GROUP_VALUES if codec.fixed_size or device.type == "cpu" else CODED_GROUP_VALUES

    def codec_of(self, group: "Group", default: Codec) -> Codec:
        """The codec of a compressed group: its parameters' own, or that of the model."""
        own = self.rule(group.names[0], torch.empty(group.shapes[0], device="meta"))
        return own if isinstance(own, Codec) else default


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that are exchanged as one tensor, flattened one after another.

    index       place in the order of exchange, and the tensor's number in the random streams
    compressed  whether the codec applies; otherwise float32
    names       the parameters, by name
    shapes      their shapes
    """

    index: int
    compressed: bool
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def cuts(self) -> list[int]:
        """Where each parameter begins in the flat group, and where the last ends."""
        return [0, *accumulate(shape.numel() for shape in self.shapes)]

    @property
    def n_values(self) -> int:
        """Values in the group."""
        return self.cuts[-1]

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters' parts of a flat (n_values,) tensor, in their own shapes."""
        cuts = self.cuts
        return {
            name: flat[first : first + shape.numel()].view(shape)
            for name, first, shape in zip(self.names, cuts, self.shapes, strict=False)
        }

    def flatten(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The values of the parameters as one flat float32 tensor: a copy."""
        return torch.cat([values[name].reshape(-1).float() for name in self.names])

    def parts(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Copies of the parameters' parts, for a saved state."""
        return {name: view.clone() for name, view in self.views(flat).items()}

    def fill(self, flat: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> None:
        """Write what `parts` gave back into a flat tensor."""
        for name, view in self.views(flat).items():
            view.copy_(parts[name])


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name; `ValueError` if none does.

    >>> list(trainable(torch.nn.Linear(2, 2)))
    ['weight', 'bias']
    """
    require_module(model)
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"{type(model).__name__} has no parameters that require a gradient")
    return found


def require_module(model: object) -> None:
    """Raise `TypeError` unless this is a module."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {model!r}")


def require_policy(policy: object) -> Policy:
    """The policy; `TypeError` if it is something else."""
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy such as Policy(min_values=1024), got {policy!r}")
    return policy


def make_groups(
    parameters: Iterable[tuple[str, torch.Tensor]],
    policy: Policy,
    codec: Codec = PLAIN,
    *,
    group_values: float | None = None,
) -> list[Group]:
    """Groups of parameters: the compressed ones, from the last parameter to the first, as backward does; then the rest.

    codec         of the model
    group_values  instead of the policy's

    >>> net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    >>> [(group.compressed, group.names) for group in make_groups(net.named_parameters(), Policy())]
    [(True, ('1.weight', '0.weight')), (False, ('1.bias', '0.bias'))]
    >>> large = [(name, torch.empty(2**21, 2, device="meta")) for name in ("w", "v")]
    >>> [len(make_groups(large, Policy(), codec_for(name))) for name in ("nuqsgd", "dithered")]
    [2, 1]
    """
    require_policy(policy)
    backwards = list(parameters)[::-1]
    for name, p in backwards:
        _check_real(name, p)
    places = {name: place for place, (name, _) in enumerate(backwards)}
    alike: dict[Codec | bool, list[tuple[str, torch.Tensor]]] = {}
    for name, p in backwards:
        alike.setdefault(policy.rule(name, p), []).append((name, p))
    runs = []
    for rule, members in alike.items():
        own = rule if isinstance(rule, Codec) else codec if rule else PLAIN
        limit = policy.values_together(own, members[0][1].device) if group_values is None else group_values
        runs += [(rule is not False, run) for run in _runs(members, limit)]
    runs.sort(key=lambda one: (not one[0], places[one[1][-1][0]]))  # in the order in which they are complete
    return [
        Group(index, compressed, tuple(name for name, _ in run), tuple(p.shape for _, p in run))
        for index, (compressed, run) in enumerate(runs)
    ]


def describe(codec: Codec, policy: Policy, groups: Iterable[Group]) -> dict[str, Any]:
    """Version, codec, policy, shapes and groups as JSON values, for ranks to compare.

    The names of groups sort last, so that a difference in shapes is reported first.

    >>> groups = make_groups(torch.nn.Linear(64, 64).named_parameters(), Policy())
    >>> describe(PLAIN, Policy(), groups)["what group 0 holds"]
    ['compressed', 'weight']
    """
    found: dict[str, Any] = {"laconic": __version__, "quantizer": repr(codec.quantizer), "coder": repr(codec.coder)}
    found |= {f"policy.{one.name}": getattr(policy, one.name) for one in fields(policy)}
    found["policy.codecs"] = repr(policy.codecs)
    for group in groups:
        found |= {f"shape of {name}": list(shape) for name, shape in zip(group.names, group.shapes, strict=True)}
        found[f"what group {group.index} holds"] = ["compressed" if group.compressed else "float32", *group.names]
    return found


def _runs(parameters: list[tuple[str, torch.Tensor]], n_values: float) -> list[list[tuple[str, torch.Tensor]]]:
    """Cut into runs of about n_values: a run is closed once it is full, and before a parameter that fills one alone."""
    runs: list[list[tuple[str, torch.Tensor]]] = []
    filled = n_values
    for name, p in parameters:
        if filled >= n_values or p.numel() >= n_values:
            runs.append([])
            filled = 0
        runs[-1].append((name, p))
        filled += p.numel()
    return runs


def _check_real(name: str, p: torch.Tensor) -> None:
    if p.is_complex():  # a copy to float32 would drop the imaginary part
        raise TypeError(
            f"parameter {name} is {str(p.dtype).removeprefix('torch.')}, and only real numbers are exchanged; "
            "keep it as torch.view_as_real(...), and call torch.view_as_complex in forward"
        )
