"""A fitted model: what predicts, and what is kept of how it came about."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.atomic_write import atomic_write
from laconic.data import BadTable, RowStream, Source, Table, describe, stream
from laconic.data.errors import NotNumeric, WrongWidth
from laconic.data.files import NAMED, format_of
from laconic.errors import CorruptPayload
from laconic.extras import require
from laconic.glm.columns import as_columns
from laconic.glm.families import FAMILIES, Family
from laconic.glm.options import unknown
from laconic.glm.problem import Label
from laconic.glm.scores import by_output, most_likely

FORMAT = "1"


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A generalised linear model, in the units of the data it was fitted to.

    coef           (C, n) float32 or float64; C is the number of classes of "multinomial", otherwise 1
    intercept      (C,) of the same type
    family         as `laconic fit --family` has it: "logistic", "linear", …; see `families.FAMILIES`
    classes        labels in the order of their probabilities, where the family classifies
    feature_names  of the n columns, where they have names
    inputs         how the columns came from the file: JSON values
    settings       how it was fitted: JSON values
    metrics        how well, by name
    kind           the family itself

    >>> model = Model(torch.tensor([[1.0, -1.0]]), torch.zeros(1), "logistic", classes=("no", "yes"))
    >>> model.predict(torch.tensor([[3.0, 0.0], [0.0, 3.0]])).tolist()
    ['yes', 'no']
    >>> model.predict_proba(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    coef: torch.Tensor
    intercept: torch.Tensor
    family: str
    classes: tuple[Label, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    kind: Family = field(init=False)

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise unknown("family", self.family, FAMILIES)
        n_classes = len(self.classes or ())
        family = FAMILIES[self.family].of(max(2, n_classes), self.settings)
        object.__setattr__(self, "kind", family)
        n_outputs = family.n_outputs
        if family.classifies != (self.classes is not None) or (family.classifies and n_classes != max(2, n_outputs)):
            raise ValueError(f"a {self.family} model with {n_classes or 'no'} classes")
        if self.coef.ndim != 2 or len(self.coef) != n_outputs or self.intercept.shape != (n_outputs,):
            shapes = f"{tuple(self.coef.shape)} and {tuple(self.intercept.shape)}"
            raise ValueError(f"coef and intercept of {n_outputs} outputs have shapes {shapes}")
        if self.coef.dtype not in (torch.float32, torch.float64) or self.intercept.dtype != self.coef.dtype:
            raise ValueError(f"coef and intercept are {self.coef.dtype} and {self.intercept.dtype}")
        names, n = self.feature_names, self.coef.shape[1]
        if names is not None and len(names) != n:
            raise ValueError(f"there are {len(names)} feature names and {n} features")

    @property
    def n_features(self) -> int:
        """Columns that X must have."""
        return int(self.coef.shape[1])

    def margins(self, X: Any, offset: torch.Tensor | None = None) -> torch.Tensor:
        """X coefᵀ + intercept + offset, (m, C); X is a tensor, an array, or a SciPy matrix in CSR form."""
        if not hasattr(X, "dtype"):
            kind = type(X).__name__
            raise TypeError(f"X must be a tensor, an array or a SciPy matrix in CSR form; convert this {kind}")
        columns = as_columns(X)
        if columns.n != self.n_features:
            raise ValueError(f"X has {columns.n} columns and the model {self.n_features}")
        z = columns.margins(self.coef) + self.intercept
        return z if offset is None else z + by_output(offset.to(z.dtype))

    def predict(self, X: Any, offset: torch.Tensor | None = None) -> np.ndarray:
        """Labels (m,) of a classifier, expected values (m,) of the others."""
        return self.labels(self.margins(X, offset))

    def predict_proba(self, X: Any, offset: torch.Tensor | None = None) -> torch.Tensor:
        """Probabilities (m, K) of the classes."""
        return self.probabilities(self.margins(X, offset))

    def labels(self, z: torch.Tensor) -> np.ndarray:
        """What `predict` makes of margins."""
        if self.classes is None:
            return self.kind.mean(z).numpy()
        result: np.ndarray = np.asarray(self.classes)[most_likely(z).numpy()]
        return result

    def probabilities(self, z: torch.Tensor) -> torch.Tensor:
        """What `predict_proba` makes of margins."""
        if self.classes is None:
            raise ValueError(f"a {self.family} model has no classes, so no probabilities of them; ask for predictions")
        p = self.kind.mean(z)
        return p if p.ndim == 2 else torch.stack([1 - p, p], 1)

    def save(self, path: "str | Path") -> None:
        """Write one safetensors file, whole or not at all; raises `NotWritten` if it cannot be."""
        about = zip(_ABOUT, attrgetter(*_ABOUT)(self), strict=True)
        metadata = {"laconic_model": FORMAT, "model": json.dumps(dict(about), allow_nan=False)}
        coef, intercept = self.coef.detach().cpu().contiguous(), self.intercept.detach().cpu().contiguous()
        save_tensors(Path(path), {"coef": coef, "intercept": intercept}, metadata)

    @classmethod
    def load(cls, path: "str | Path") -> "Model":
        """Read what `save` wrote; anything else is `CorruptPayload`."""
        tensors, metadata = load_tensors(Path(path), "a model of laconic")
        try:
            return cls(*_checked(tensors), **_about(metadata))
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptPayload(f"{path} is not a model of laconic: {error}") from error


_ABOUT = ("family", "classes", "feature_names", "inputs", "settings", "metrics")


def _checked(tensors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    if set(tensors) != {"coef", "intercept"}:
        raise ValueError(f"it holds {sorted(tensors)} instead of coef and intercept")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"its {name} is not finite")
    return tensors["coef"], tensors["intercept"]


def _about(metadata: dict[str, str]) -> dict[str, Any]:
    version = metadata.get("laconic_model")
    if version is None:
        raise ValueError("it does not say that it is one")
    if version != FORMAT:
        raise ValueError(f"it is of version {version[:20]!r}; this laconic reads version {FORMAT}")
    about = json.loads(metadata.get("model", ""))
    if not isinstance(about, dict) or set(about) != set(_ABOUT):
        raise ValueError(f"its description does not consist of {', '.join(_ABOUT)}")
    if not isinstance(about["family"], str):
        raise TypeError("its family is no name")
    about["classes"] = _names(about["classes"], "classes", (str, int, float))
    about["feature_names"] = _names(about["feature_names"], "feature_names", (str,))
    for name in ("inputs", "settings", "metrics"):
        if not isinstance(about[name], dict):
            raise TypeError(f"its {name} are no table")
    return about


def _names(found: Any, what: str, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, kinds) for name in found):
        raise TypeError(f"its {what} are no list of names")
    return tuple(found)


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """One safetensors file of tensors that are contiguous, on the CPU: the same bytes each time.

    safetensors writes the metadata in an order that changes, so that its header is written anew.
    """
    require("safetensors.torch", for_="saving a model", extra="glm")
    from safetensors.torch import save

    data = memoryview(save(dict(tensors), dict(metadata)))
    end = 8 + int.from_bytes(data[:8], "little")
    about = json.loads(bytes(data[8:end])) | {"__metadata__": dict(metadata)}
    header = json.dumps(about, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with atomic_write(path, "wb", n_bytes=8 + len(header) + len(data) - end) as file:
        file.writelines([len(header).to_bytes(8, "little"), header, data[end:]])


def load_tensors(path: Path, what: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; `CorruptPayload` where it is none.

    what  the file should be, for the message: "a model"
    """
    require("safetensors", for_="loading a model", extra="glm")
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CorruptPayload(f"{path} is a folder; give a file" if path.is_dir() else f"there is no file {path}")
    try:
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptPayload(f"{path} is not {what}: {error}") from error


_ROLES = ("target", "sample_weight", "offset", "exposure")


def inputs_of(source: Source, table: Table) -> dict[str, Any]:
    """How a model's columns came from the file: what `rows_for` needs to read another one for it. JSON values."""
    of_store = {role: names[0] for role, names in table.roles.items() if names}
    return {
        **{role: getattr(source, role) or of_store.get(role) for role in _ROLES},
        "one_hot": dict(table.one_hot),
        "zero_based": table.zero_based,
    }


def rows_for(model: Model, source: Source) -> tuple[RowStream, Iterator[Table]]:
    """A file's rows in blocks, with the columns in the model's order and type.

    Columns that the model does not know are passed over; `BadTable` names one that it needs and the file lacks. Offset
    or exposure are those of the fit, unless others are given, where the file has such a column.
    """
    source = _source_for(model, source)
    try:
        rows = stream(source, dtype="fp64" if model.coef.dtype == torch.float64 else "fp32")
    except WrongWidth as error:
        raise BadTable(f"{source.path} has {error.found} features and the model {model.n_features}") from error
    except NotNumeric as error:
        what = f"column {error.column!r} is not numeric, as it was where the model was fitted"
        raise BadTable(f"{source.path}: {what}") from error
    return rows, _ordered(model, source, rows)


def like_fitted(model: Model, fitted: Source, path: str) -> Source:
    """Another file with the parts that the columns of the file fitted to play; of another format, as far as it has
    them."""
    kind = format_of(path)
    if kind == format_of(fitted):
        return replace(fitted, path=path)
    roles: dict[str, Any] = {role: getattr(fitted, role) or model.inputs.get(role) for role in _ROLES if kind in NAMED}
    return Source(path, limit=fitted.limit, **roles)


def _source_for(model: Model, source: Source) -> Source:
    kind = format_of(source)
    if kind == "libsvm":
        return replace(source, n_features=model.n_features, zero_based=model.inputs.get("zero_based"))
    if kind not in NAMED:
        return source
    names = describe(source).columns or ()
    if source.offset is None and source.exposure is None:
        known = {name: model.inputs.get(name) for name in ("offset", "exposure")}
        source = replace(source, **{name: column for name, column in known.items() if column in names})
    if model.feature_names is None:
        return source
    one_hot: dict[str, list[str]] = dict(model.inputs.get("one_hot", {}))
    spread = {f"{column}={category}" for column, found in one_hot.items() for category in found}
    needed = {*one_hot, *(name for name in model.feature_names if name not in spread)}
    others = {source.target, source.sample_weight, source.offset, source.exposure}
    if both := sorted(needed & others):
        what = f"column {both[0]!r} is a feature of the model; it cannot be the target, weight or offset, too"
        raise BadTable(f"{source.path}: {what}")
    kept = needed | others
    missing = [name for name in model.feature_names if name in needed and name not in names]
    missing += [name for name in one_hot if name not in names]
    if missing:
        raise BadTable(f"{source.path} has no column {missing[0]!r}, which the model needs")
    return replace(source, one_hot=one_hot, exclude=tuple(name for name in names if name not in kept))


def _ordered(model: Model, source: Source, rows: RowStream) -> Iterator[Table]:
    found = rows.like
    if found.n_features != model.n_features:
        raise BadTable(f"{source.path} has {found.n_features} features and the model {model.n_features}")
    order = None
    if found.feature_names is not None and model.feature_names not in (None, found.feature_names):
        place = {name: j for j, name in enumerate(found.feature_names)}
        missing = [name for name in model.feature_names or () if name not in place]
        if missing:
            raise BadTable(f"{source.path} has no feature {missing[0]!r}, which the model needs")
        order = [place[name] for name in model.feature_names or ()]
    for block in rows.blocks:
        yield block if order is None else replace(block, X=block.X[:, order], feature_names=model.feature_names)
