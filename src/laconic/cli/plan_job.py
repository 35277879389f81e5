"""What `laconic plan` is to plan: what the options say, or a former plan's job with that in its place."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from laconic.cli.errors import BadInput

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
    {
        "rows": "n_rows",
        "features": "n_features",
        "density": "density",
        "family": "family",
        "outputs": "n_outputs",
        "batch_size": "batch_size",
        "loss_gap": "loss_gap",
    },
    ("rows", "features"),
)
NETWORK = Kind(
    "network",
    "network",
    {"parameters": "n_parameters", "backward": "backward_seconds", "other": "other_seconds"},
    ("parameters",),
)


def job_for(asked: Mapping[str, Any], old: "Plan | None") -> "tuple[GlmJob | NetworkJob, int | None]":
    """The job and its s: as asked, and where nothing was as in the old plan, if that is of the same kind.

    asked  the command's parameters by name; None for what was not given
    """
    from laconic.planner.plan import JOBS

    kind = _kind(asked, old)
    given = {field: asked[name] for name, field in kind.fields.items() if asked[name] is not None}
    try:
        if old is not None and old.kind == kind.kind:
            job, s = replace(old.job, **given), asked["s"] or old.s
        else:
            job, s = JOBS[kind.kind](**given), asked["s"]
    except ValueError as error:
        raise BadInput(in_options(str(error))) from error
    batches = getattr(job, "batches", None)
    if s is not None and batches is not None and s > batches:
        raise BadInput(f"--s {s} is more than the {batches} batches of an epoch; give --s {batches} or less")
    return job, s


def in_options(message: str) -> str:
    """The planner's words for a job's fields as the command line's options.

    >>> in_options("family='logistic' has one output; leave n_outputs out")
    '--family logistic has one output; leave --outputs out'
    """
    for name, option in (("n_outputs", "--outputs"), ("loss_gap", "--loss-gap"), ("density", "--density")):
        message = re.sub(rf"\b{name}\b", option, message)
    return re.sub(r"\bfamily='(\w+)'", r"--family \1", message)


def _kind(asked: Mapping[str, Any], old: "Plan | None") -> Kind:
    """The kind that is asked for, or that of the old plan; a complaint where that says too much or too little."""
    model, network = _given(asked, (*MODEL.fields, "s")), _given(asked, NETWORK.fields)
    if model and network:
        raise BadInput(f"{model[0]} is about a model and {network[0]} about a network: give one of them, not both")
    former = None if old is None else MODEL if old.kind == MODEL.kind else NETWORK
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
    return f"--{name.replace('_', '-')}"
