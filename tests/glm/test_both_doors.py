"""`laconic fit` and the estimators are one fit: the same file, seed and options give the same bits and score."""

import json
import warnings
from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.linear_model import GammaRegressor, TweedieRegressor
from sklearn.metrics import d2_tweedie_score

import laconic
from laconic import CASGDClassifier, CASGDRegressor
from laconic.cli import main
from laconic.data import BadTable, Source, Table, as_target, convert, write_store
from laconic.glm.model import Model
from laconic.glm.options import DEFAULTS, FitOptions
from laconic.glm.precision import AUTO

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

M, N, ALPHA = 600, 5, 1e-2
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)).round(3)
Z = X @ np.array([0.5, -0.4, 0.3, 0.0, 0.2]) + 0.3
MEAN = np.exp(Z)
TARGETS = {
    "logistic": (Z + RNG.logistic(size=M) > 0).astype(int),
    "multinomial": np.digitize(Z + RNG.logistic(size=M), [-0.7, 0.9]),
    "linear": (Z + 0.5 * RNG.standard_normal(M)).round(4),
    "poisson": RNG.poisson(MEAN),
    "gamma": RNG.gamma(3.0, MEAN / 3).clip(1e-3).round(4),
    "tweedie": (RNG.poisson(MEAN) * RNG.gamma(2.0, 0.5, M)).round(4),
}
WEIGHT = (1 + RNG.integers(0, 3, M)).astype(float)


def write(path, family, kind):
    """A file of these rows; of CSV and Parquet with weights and an offset."""
    y, columns = TARGETS[family], {f"x{j}": X[:, j] for j in range(N)}
    columns |= {"y": y, "w": WEIGHT, "o": (0.1 * X[:, 0]).round(3)}
    if kind == "csv":
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    elif kind == "svm":
        lines = (f"{t} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)) for x, t in zip(X, y, strict=True))
        path.write_text("\n".join(lines) + "\n")
    else:
        write_store(path, Table(torch.from_numpy(X), as_target(y)), {"fp32": "fp32", "fp64": "fp64"}[kind])
    return path


SUFFIX = {"csv": "csv", "parquet": "parquet", "svm": "svm", "fp32": "safetensors", "fp64": "safetensors"}


def estimator(family, **options):
    if family in ("logistic", "multinomial"):
        return CASGDClassifier(**options)
    return CASGDRegressor({"linear": "squared_error"}.get(family, family), **options)


def through_the_command_line(capsys, path, output, family, named, *options):
    roles = ["--target", "y", "--weight", "w", "--offset", "o"] if named else []
    assert main(["fit", str(path), "-o", str(output), "--family", family, "--json", "-q", *roles, *options]) == 0
    return Model.load(output), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", SUFFIX)
@pytest.mark.parametrize("family", TARGETS)
def test_the_same_file_gives_the_same_bits(family, kind, tmp_path, capsys):
    path, named = write(tmp_path / f"rows.{SUFFIX[kind]}", family, kind), kind in ("csv", "parquet")
    model, report = through_the_command_line(
        capsys, path, tmp_path / "m.safetensors", family, named, "--seed", "3", "--max-iter", "4"
    )
    ours = estimator(family, max_iter=4, random_state=3)
    ours.fit(path, *(("y", "w", "o") if named else ()))
    assert ours.ran_ == report["ran"]
    np.testing.assert_array_equal(np.atleast_2d(ours.coef_), model.coef.numpy())
    np.testing.assert_array_equal(ours.intercept_, model.intercept.numpy())
    score = ours.score(path, sample_weight="w" if named else None)
    assert score == next(iter(report["metrics"].values()))  # to the last digit
    assert main(["predict", str(tmp_path / "m.safetensors"), str(path)]) == 0
    assert [float(line) for line in capsys.readouterr().out.splitlines()[1:]] == ours.predict(path).tolist()


CHANGED = {
    "--solver ca_sgd --s 4 --batch-size 8": {"solver": "ca_sgd", "s": 4, "batch_size": 8},
    "--recipe C --alpha 0.1 --no-intercept": {"recipe": "C", "alpha": 0.1, "fit_intercept": False},
    "--l1-ratio 0.5 --momentum 0.5 --tol -1": {"l1_ratio": 0.5, "momentum": 0.5, "tol": None},
    "--learning-rate cosine --eta0 0.05": {"learning_rate": "cosine", "eta0": 0.05},
    "--recipe auto:0.2 --solver ca_sgd --s 8": {"recipe": "auto:0.2", "solver": "ca_sgd", "s": 8},
}


@pytest.mark.parametrize("typed", CHANGED)
def test_options_mean_the_same(typed, tmp_path, capsys):
    path = write(tmp_path / "rows.csv", "poisson", "csv")
    model, _ = through_the_command_line(
        capsys, path, tmp_path / "m.safetensors", "poisson", True, *typed.split(), "--max-iter", "4"
    )
    ours = CASGDRegressor("poisson", max_iter=4, random_state=0, **CHANGED[typed]).fit(path, "y", "w", "o")
    np.testing.assert_array_equal(ours.coef_, model.coef[0].numpy())
    np.testing.assert_array_equal(ours.intercept_, model.intercept.numpy())


def test_defaults_are_the_same():
    """Every parameter of the estimators that is an option of a fit has its default; so has the command line."""
    import inspect

    from laconic.cli.fit import fit

    options = {field.name: getattr(DEFAULTS, field.name) for field in fields(FitOptions)}
    for kind in (CASGDClassifier, CASGDRegressor):
        given = {name: p.default for name, p in inspect.signature(kind.__init__).parameters.items() if name in options}
        assert given == {name: options[name] for name in given}
        missing = options.keys() - given.keys()
        assert missing <= {"family", "seed", "tweedie_power", "theta"}
    typed = {name: p.default for name, p in inspect.signature(fit).parameters.items()}
    typed["standardize"] = typed["standardize"] or AUTO
    assert {name: typed[name] for name in typed if name in options} == {
        name: options[name] for name in options if name in typed
    }
    only_python = {"early_stopping", "validation_fraction", "shuffle", "sampling", "gradient", "average", "power_t"}
    assert options.keys() - typed.keys() == only_python | {"n_iter_no_change", "polish"}


RIVALS = {"gamma": (GammaRegressor, {}, 2.0), "tweedie": (TweedieRegressor, {"power": 1.5, "link": "log"}, 1.5)}


@pytest.mark.parametrize("family", RIVALS)
def test_amounts_are_scikit_learn_s(family, tmp_path, capsys):
    kind, parameters, power = RIVALS[family]
    y = TARGETS[family].astype(float)
    best = kind(alpha=ALPHA, tol=1e-11, max_iter=10_000, **parameters).fit(X, y, sample_weight=WEIGHT)
    steps = {"batch_size": M, "max_iter": 3000, "tol": 1e-13, "learning_rate": "constant", "eta0": 0.3}
    ours = CASGDRegressor(family, alpha=ALPHA, random_state=0, **steps).fit(X, y, WEIGHT)
    assert ours.ran_ == "sgd, torch, fp64"
    assert np.linalg.norm(ours.coef_ - best.coef_) < 1e-3 * np.linalg.norm(best.coef_)
    assert ours.intercept_[0] == pytest.approx(best.intercept_, abs=1e-3)
    expected = d2_tweedie_score(y, ours.predict(X), sample_weight=WEIGHT, power=power)
    assert ours.score(X, y, WEIGHT) == pytest.approx(expected, rel=1e-12)


def test_a_power_of_one_s_own(tmp_path, capsys):
    path = write(tmp_path / "rows.csv", "tweedie", "csv")
    model, report = through_the_command_line(
        capsys, path, tmp_path / "m.safetensors", "tweedie", True, "--tweedie-power", "1.2", "--test", str(path),
    )  # fmt: skip
    assert model.kind.power == 1.2
    assert report["test_metrics"] == report["metrics"]
    ours = CASGDRegressor("tweedie", tweedie_power=1.2, random_state=0).fit(path, "y", "w", "o")
    assert ours.score(path, sample_weight="w") == report["metrics"]["d2"]
    assert main(["fit", str(path), "-o", "m", "--family", "tweedie", "--target", "y", "--tweedie-power", "2"]) == 2
    assert "--tweedie-power must lie between 1 and 2; got 2.0" in capsys.readouterr().err


def fitted_by_command(capsys, path, *options):
    output = path.with_suffix(".model")
    assert main(["fit", str(path), "-o", str(output), "--target", "y", "--family", "poisson", "-q", *options]) == 0
    return laconic.load(output), capsys.readouterr().out


def test_exposure_means_the_same(tmp_path, capsys):
    exposure = (0.5 + RNG.random(M)).round(3)
    path, columns = tmp_path / "rows.csv", np.c_[X, TARGETS["poisson"], exposure]
    np.savetxt(path, columns, "%.6g", ",", header="a,b,c,d,e,y,t", comments="")
    model, _ = fitted_by_command(capsys, path, "--exposure", "t")
    by_file = CASGDRegressor("poisson", random_state=0).fit(path, "y", exposure="t")
    np.testing.assert_array_equal(by_file.coef_, model.coef[0].numpy())
    y = TARGETS["poisson"]
    one, other = (CASGDRegressor("poisson", random_state=0) for _ in range(2))
    one.fit(X, y, exposure=exposure), other.fit(X, y, offset=np.log(exposure))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.predict(X, exposure=exposure), other.predict(X, np.log(exposure)))
    assert one.score(X, y, exposure=exposure) == other.score(X, y, offset=np.log(exposure))
    assert by_file.score(path) == by_file.score(path, "y", exposure=-1)


WRONG_EXPOSURES = {
    "exposure is 0.0 in row 3; an exposure must be positive": {"exposure": np.r_[1, 1, 0, np.ones(M - 3)]},
    "give offset or exposure, not both": {"exposure": np.ones(M), "offset": np.zeros(M)},
    "names a column, and X is no file": {"exposure": "t"},
}


@pytest.mark.parametrize("message", WRONG_EXPOSURES)
def test_wrong_exposures(message):
    with pytest.raises((ValueError, TypeError), match=message):
        CASGDRegressor("poisson").fit(X, TARGETS["poisson"], **WRONG_EXPOSURES[message])


def test_categories_mean_the_same(tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    area = pa.array(np.array(["b", "c", "a"])[RNG.integers(0, 3, M)]).dictionary_encode()
    frame, y = pa.table({"x": X[:, 0], "area": area, "z": X[:, 1]}), TARGETS["poisson"]
    path = tmp_path / "rows.parquet"
    pq.write_table(frame.append_column("y", pa.array(y)), path)
    model, _ = fitted_by_command(capsys, path, "--recipe", "fp64")
    names = ["x", "area=a", "area=b", "area=c", "z"]
    by_file = CASGDRegressor("poisson", random_state=0, recipe="fp64").fit(path, "y")
    by_frame = CASGDRegressor("poisson", random_state=0, recipe="fp64").fit(frame, y)
    for one in (by_file, by_frame):
        assert one.feature_names_in_.tolist() == names == list(model.feature_names)
        np.testing.assert_array_equal(one.coef_, model.coef[0].numpy())
    expected = by_file.predict(path)
    np.testing.assert_array_equal(by_frame.predict(frame.select(["z", "area", "x"])), expected)
    text = frame.set_column(1, "area", area.cast(pa.string()))  # as a file of text has them
    np.testing.assert_array_equal(by_frame.predict(text), expected)
    by_frame.save(tmp_path / "m.safetensors")
    assert main(["predict", str(tmp_path / "m.safetensors"), str(path)]) == 0
    assert [float(line) for line in capsys.readouterr().out.splitlines()[1:]] == expected.tolist()
    with pytest.raises(BadTable, match="column 'area' has category 'd' in row 1, which is not one of 'a', 'b', 'c'"):
        by_frame.predict(pa.table({"x": [0.0], "area": pa.array(["d"]).dictionary_encode(), "z": [0.0]}))
    with pytest.raises(BadTable, match="X has no column 'area'"):
        by_frame.predict(frame.select(["x", "z"]))
    with pytest.raises(BadTable, match="column 't' is neither of numbers nor of categories"):
        CASGDRegressor().fit(frame.append_column("t", pa.array(["q"] * M)), y)


def test_a_file_without_a_header_is_told_of(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.c_[X, TARGETS["poisson"]], "%.6g", ",")
    told = f"{path}: no header: columns c0, c1, c2, …"
    fit = ["fit", str(path), "-o", str(tmp_path / "m"), "--target", "c5", "--family", "poisson", "-q"]
    assert main(fit) == 0
    assert told in (out := capsys.readouterr().out)
    assert f"{M} rows × {N} columns" in out
    with pytest.warns(UserWarning, match=told):
        model = CASGDRegressor("poisson").fit(path, "c5")
    assert model.feature_names_in_.tolist() == [f"c{j}" for j in range(N)]
    assert main([*fit, "--no-header"]) == 0
    assert told not in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CASGDRegressor("poisson").fit(Source(str(path), header=False, exclude=("c4",)), "c5")


@pytest.mark.parametrize("kinds", [("csv", "fp64"), ("fp64", "csv"), ("csv", "parquet")])
def test_rows_to_test_may_be_in_another_format(kinds, tmp_path, capsys):
    """With the weights and the offset that the file fitted to has."""
    fitted, tested = (tmp_path / f"rows.{SUFFIX[kind]}" for kind in kinds)
    roles = {"target": "y", "sample_weight": "w", "offset": "o"}
    for path, kind in ((fitted, kinds[0]), (tested, kinds[1])):
        if kind == "fp64":
            convert(write(tmp_path / "rows.csv", "poisson", "csv"), path, dtype="fp64", **roles)
        else:
            write(path, "poisson", kind)
    named = kinds[0] == "csv"
    _, report = through_the_command_line(
        capsys, fitted, tmp_path / "m.safetensors", "poisson", named, "--recipe", "fp64", "--test", str(tested)
    )
    assert report["test_metrics"] == pytest.approx(report["metrics"], rel=1e-9)


LARGER_THAN_MEMORY = {
    "--solver newton --standardize": ("parquet", {"solver": "newton", "standardize": True}),
    "--solver newton --no-standardize": ("csv", {"solver": "newton", "standardize": False}),
    "--solver sgd --standardize": ("csv", {"solver": "sgd", "standardize": True}),
    "--solver sgd --no-standardize --momentum 0.5": (
        "parquet",
        {"solver": "sgd", "standardize": False, "momentum": 0.5},
    ),
    "--solver ca_sgd --s 4 --standardize": ("parquet", {"solver": "ca_sgd", "s": 4, "standardize": True}),
}


@pytest.mark.parametrize("typed", LARGER_THAN_MEMORY)
def test_a_file_larger_than_memory_gives_the_same_bits(typed, tmp_path, capsys, monkeypatch):
    """Rows from a mapped store, a few at a time, scaled as they are taken."""
    monkeypatch.setattr("laconic.glm.columns.RESIDENT_BYTES", 2000)
    kind, options = LARGER_THAN_MEMORY[typed]
    path = write(tmp_path / f"rows.{kind}", "poisson", kind)
    given = [*typed.split(), "--max-iter", "3", "--exposure", "w", "--drop", "o"]
    in_memory, _ = fitted_by_command(capsys, path, *given)
    folder, told = str(tmp_path / "cache"), "X takes 12,000 bytes, more than memory_bytes allows: it is mapped from"
    mapped, out = fitted_by_command(capsys, path, *given, "--limit", "memory_bytes=1000", "--cache", folder)
    assert f"{path}: {told} {folder}" in out
    assert torch.equal(mapped.coef, in_memory.coef)
    assert torch.equal(mapped.intercept, in_memory.intercept)
    assert mapped.inputs == in_memory.inputs
    ours = CASGDRegressor("poisson", max_iter=3, random_state=0, **options)
    with pytest.warns(UserWarning, match=told):
        ours.fit(Source(str(path), exclude=("o",), limit=("memory_bytes=1000",), cache=folder), "y", exposure="w")
    np.testing.assert_array_equal(ours.coef_, in_memory.coef[0].numpy())
    assert main(["fit", str(path), "-o", "m.safetensors", "--target", "y", *given, "--limit", "bytes=1"]) == 2
    assert "--limit takes NAME=NUMBER" in capsys.readouterr().err
    whole, out = fitted_by_command(capsys, path, *given, "--limit", "memory_bytes=12000", "--cache", folder)
    assert told not in out
    assert torch.equal(whole.coef, in_memory.coef)
