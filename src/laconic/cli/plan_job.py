"""The job that `laconic plan` plans: from its options, or a former plan's with those options changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from laconic.cli.errors import BadInput, spell
from laconic.errors import LaconicError, Option

if TYPE_CHECKING:
    from laconic.planner import GlmJob, NetworkJob, Plan


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job.

    name    as messages have it
    kind    as a plan has it
    fields  of the job, by the command's parameters
    needed  those without which there is no such job
    """

    name: str
    kind: str
    fields: Mapping[str, str]
    needed: tuple[str, ...]


MODEL = Kind(
    "model",
    "glm",
    {"rows": "n_rows", "features": "n_features", "outputs": "n_outputs"}
    | {name: name for name in ("density", "family", "batch_size", "loss_gap")},
    ("rows", "features"),
)
NETWORK = Kind(
    "network",
    "network",
    {"parameters": "n_parameters", "backward": "backward_seconds", "other": "other_seconds"},
    ("parameters",),
)


def job_for(asked: Mapping[str, Any], old: "Plan | None") -> "tuple[GlmJob | NetworkJob, int | None]":
    """The job and its s: as asked, and otherwise as in the old plan if that is of the same kind.

    asked  the command's parameters by name; None for what was not given
    """
    from laconic.glm.families import FAMILIES
    from laconic.planner.plan import JOBS

    if asked["family"] not in (None, *FAMILIES):
        raise BadInput("unknown ", Option("family", asked["family"]), f"; choose one of {', '.join(FAMILIES)}")
    kind = _kind(asked, old)
    given = {field: asked[name] for name, field in kind.fields.items() if asked[name] is not None}
    try:
        if old is not None and old.job.kind == kind.kind:
            job, s = replace(old.job, **given), asked["s"] or old.s
        else:
            job, s = JOBS[kind.kind](**given), asked["s"]
    except LaconicError as error:
        options = {field: name for name, field in kind.fields.items()}
        raise BadInput(error.message(partial(spell, names=options))) from error
    batches = getattr(job, "batches", None)
    if s is not None and batches is not None and s > batches:
        raise BadInput(f"--s {s} is more than the {batches} batches of an epoch; give --s {batches} or less")
    return job, s


def _kind(asked: Mapping[str, Any], old: "Plan | None") -> Kind:
    """The kind of job that the options are about, or that of the old plan; `BadInput` if they fit neither."""
    model, network = _given(asked, (*MODEL.fields, "s")), _given(asked, NETWORK.fields)
    if model and network:
        raise BadInput(f"{model[0]} is about a model and {network[0]} about a network: give one of them, not both")
    former = None if old is None else MODEL if old.job.kind == MODEL.kind else NETWORK
    kind = MODEL if model else NETWORK if network else former
    if kind is not None and (kind is former or all(asked[name] is not None for name in kind.needed)):
        return kind
    if kind is None or former is None:
        raise BadInput("say what to plan: --rows and --features of a model's data, or --parameters of a network")
    needed = " and ".join(map(_option, kind.needed))
    raise BadInput(
        f"the plan is of a {former.name}; for a {kind.name}, which {(model or network)[0]} is about, give {needed}"
    )


def _given(asked: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [_option(name) for name in names if asked[name] is not None]


def _option(name: str) -> str:
    return spell(Option(name))
