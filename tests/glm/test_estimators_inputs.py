"""Mistakes are explained, and files can stand in for matrices."""

import numpy as np
import pytest
import scipy.sparse
import torch

from laconic import BackendUnavailable, CASGDClassifier, CASGDRegressor

from .estimator_problems import KNOWN, features

X, LABELS, COUNTS = features()[:60], KNOWN["binary"].y[:60], KNOWN["poisson"].y[:60]

PARAMETERS = [
    ({"loss": "hinge"}, "unknown loss='hinge'; choose one of log_loss"),
    ({"recipe": "E"}, "unknown recipe='E'; choose one of fp32, fp64, C, D, auto"),
    ({"learning_rate": "optimal"}, "unknown learning_rate='optimal'; choose one of constant"),
    ({"solver": "lbfgs"}, "unknown solver='lbfgs'; choose one of auto, sgd, ca_sgd"),
    ({"sampling": "importance"}, "unknown sampling='importance'"),
    ({"gradient": "median"}, "unknown gradient='median'"),
    ({"alpha": -1.0}, "alpha must be a number from 0 to inf; got -1.0"),
    ({"l1_ratio": 2}, "l1_ratio must be a number from 0 to 1; got 2"),
    ({"momentum": 1.0}, r"momentum must be a number from 0 to 1 \(excluded\); got 1.0"),
    ({"eta0": 0.0}, r'eta0 must be a number from 0 \(excluded\) to inf, or "auto"; got 0.0'),
    ({"eta0": "fast"}, "eta0 must be a number"),
    ({"s": 0}, 's must be a whole number, at least 1, or "auto"; got 0'),
    ({"s": 2.5}, "s must be a whole number"),
    ({"batch_size": "32"}, "batch_size must be a whole number, at least 1; got '32'"),
    ({"max_iter": 0}, "max_iter must be a whole number, at least 1; got 0"),
    ({"average": -1}, "average must be a whole number, at least 0, True or False; got -1"),
    ({"tol": "small"}, "tol must be a number"),
    ({"shuffle": False, "sampling": "replacement"}, "shuffle=False takes rows as they come"),
    ({"validation_fraction": 1.0}, "validation_fraction must be a number"),
    ({"warm_start": "yes"}, "unknown warm_start='yes'; choose one of True, False"),
    ({"callbacks": None}, "callbacks must be functions in a list, got None"),
    ({"callbacks": [print, "print"]}, "callbacks must be functions in a list"),
    ({"device": "tpu"}, "unknown device='tpu'; choose cpu, cuda"),
]


@pytest.mark.parametrize(("parameters", "message"), PARAMETERS, ids=[str(p) for p, _ in PARAMETERS])
def test_parameters_are_checked_by_name(parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        CASGDClassifier(**parameters).fit(X, LABELS)


def plain_sgd():
    return CASGDClassifier(solver="sgd", standardize=False)


def with_entry(value):
    bad = X.copy()
    bad[3, 2] = value
    return bad


DATA = [
    (lambda: CASGDClassifier().fit(with_entry(np.nan), LABELS), "Input X contains NaN"),
    (lambda: CASGDClassifier().fit(scipy.sparse.csr_array(with_entry(np.inf)), LABELS), "infinity"),
    (lambda: CASGDClassifier().fit(torch.from_numpy(with_entry(np.nan)), LABELS), "X is nan in row 4, column 3"),
    (lambda: CASGDClassifier().fit(torch.zeros(3), LABELS), "Expected 2D array"),
    (lambda: CASGDClassifier().fit(torch.from_numpy(X).to_sparse(), LABELS), "pass sparse data as a SciPy matrix"),
    (lambda: CASGDClassifier().fit(X, LABELS[:-1]), "X has 60 rows, y has 59"),
    (lambda: CASGDClassifier().fit(X, np.zeros(60)), "at least two classes"),
    (lambda: CASGDClassifier().fit(X, np.linspace(0, 1, 60)), "Unknown label type"),
    (lambda: CASGDClassifier().fit(X, None), "requires y to be passed"),
    (lambda: CASGDClassifier().fit(X, LABELS, sample_weight=-np.ones(60)), "sample_weight is -1 in row 1"),
    (lambda: CASGDClassifier().fit(X, LABELS, sample_weight=np.ones(61)), "sample_weight.shape"),
    (lambda: CASGDClassifier().fit(X, LABELS, offset=np.ones(61)), "X has 60 rows, offset has 61"),
    (lambda: CASGDClassifier().fit(X, LABELS, offset=np.ones((60, 2))), "one column for each of 1 outputs, got 2"),
    (lambda: CASGDClassifier().fit(X, LABELS, rows="split"), "rows must be one of 'replicated', 'partitioned'"),
    (
        lambda: CASGDRegressor("poisson").fit(X, COUNTS - 5),
        "poisson: targets must not be negative, but row 1",
    ),
    (lambda: CASGDRegressor("poisson").fit(X, COUNTS, offset=np.full(60, -np.inf)), "offset is -inf in row 1"),
    (lambda: CASGDClassifier().fit(torch.zeros(60, 2).to(torch.float8_e5m2), LABELS), "X is a tensor of torch.float8"),
    (lambda: CASGDClassifier().fit(1e200 * X, LABELS), "squares of its values overflow float64; divide"),
    (lambda: plain_sgd().fit(1e200 * X, LABELS), "products of its rows overflow float64; standardise"),
    (lambda: plain_sgd().fit(np.float32(1e30) * X.astype(np.float32), LABELS), "which is 0 in float32"),
    (lambda: CASGDRegressor().fit(X, with_entry(np.nan)[:, 2]), "y contains NaN"),
    (lambda: CASGDRegressor().fit(X, COUNTS).predict(X[:, :3]), "X has 3 features"),
    (lambda: CASGDRegressor().fit("nowhere.csv", "y"), "there is no file nowhere.csv"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("call", "message"), DATA, ids=[message for _, message in DATA])
def test_data_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_may_lie_anywhere():
    record = np.zeros(60, dtype=[("x", "f8", (6,)), ("flag", "i1")])
    record["x"] = X
    usual = CASGDClassifier(tol=None, max_iter=3, random_state=0).fit(X, LABELS)
    for there in (record["x"], np.asfortranarray(X), X[::-1][::-1], X.astype(">f8"), np.repeat(X, 2, axis=1)[:, ::2]):
        model = CASGDClassifier(tol=None, max_iter=3, random_state=0).fit(there, LABELS)
        np.testing.assert_array_equal(model.coef_, usual.coef_)
        np.testing.assert_allclose(model.predict_proba(there), usual.predict_proba(X))


def test_half_precision_stays_so_in_memory():
    model = CASGDRegressor(tol=None, max_iter=3).fit(torch.from_numpy(X).bfloat16(), COUNTS)
    assert model.ran_ == "sgd, compiled, fp32 data=bf16"
    assert model.predict(torch.from_numpy(X).bfloat16()).dtype == torch.float32


def test_the_caller_s_arrays_stay_as_they_are():
    matrix = scipy.sparse.csr_array((np.ones(4), [1, 1, 0, 5], [0, 2, 4]), shape=(2, 6))  # an entry given twice
    summed = CASGDRegressor(tol=None, max_iter=3, solver="ca_sgd", random_state=0).fit(matrix, [1.0, 2.0])
    assert matrix.nnz == 4
    usual = CASGDRegressor(tol=None, max_iter=3, solver="ca_sgd", random_state=0).fit(matrix.toarray(), [1.0, 2.0])
    np.testing.assert_allclose(summed.coef_, usual.coef_)


@pytest.fixture
def folder(tmp_path):
    header = ",".join([*(f"x{j}" for j in range(6)), "claims", "log_exposure", "animal"])
    offset, animal = np.linspace(-1, 0, 60), np.where(LABELS == 1, "dog", "cat")
    lines = [",".join([*map(str, x), str(c), str(o), a]) for x, c, o, a in zip(X, COUNTS, offset, animal, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join([header, *lines]) + "\n")
    (tmp_path / "numbers.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in [header, *lines]) + "\n")
    rows = [f"{y} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)) for x, y in zip(X, LABELS, strict=True)]
    (tmp_path / "train.svm").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.parametrize("plain", [X, X.astype(np.float32), np.asfortranarray(X), X[:, ::-1]])
def test_a_plain_array_is_checked_as_any_other(plain, folder):
    models = [CASGDRegressor("poisson", max_iter=2, tol=None, random_state=0) for _ in range(2)]
    for model, own in zip(models, (plain, plain.view(type("Other", (np.ndarray,), {}))), strict=True):
        model.fit(folder / "numbers.csv", "claims").fit(own, COUNTS)
        assert model.n_features_in_ == 6
        assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_files(folder):
    offset = np.linspace(-1, 0, 60)
    usual = CASGDRegressor("poisson", max_iter=4, tol=None, random_state=0)
    usual.fit(X.astype(np.float32), COUNTS, offset=offset)
    model = CASGDRegressor("poisson", max_iter=4, tol=None, random_state=0)
    model.fit(folder / "numbers.csv", "claims", offset="log_exposure")
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=1e-5)
    assert model.feature_names_in_.tolist() == [f"x{j}" for j in range(6)]
    np.testing.assert_allclose(model.predict(folder / "numbers.csv"), usual.predict(X, offset=offset), rtol=1e-4)
    assert model.score(folder / "numbers.csv") == pytest.approx(usual.score(X, COUNTS, offset=offset), abs=1e-4)


@pytest.fixture
def tables(tmp_path):
    """Files in which targets, weights and offsets are columns: the same rows, under other names."""
    columns = {f"x{j}": X[:, j] for j in range(6)} | {"claims": COUNTS, "w": 1 + COUNTS, "animal": LABELS}
    columns |= {"a": np.linspace(-1, 0, 60), "b": np.linspace(-2, 2, 60)}
    for name, left_out in {"fit": "animal b", "other": "animal a", "both": "animal", "animals": "claims a b"}.items():
        kept = [column for column in columns if column not in left_out.split()]
        rows = zip(*(columns[column] for column in kept), strict=True)
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in [kept, *rows]) + "\n")
    return tmp_path, columns


def test_columns_are_named_after_the_fit_as_in_it(tables):
    folder, columns = tables
    options = {"loss": "poisson", "max_iter": 4, "tol": None, "random_state": 0, "recipe": "fp64"}
    model = CASGDRegressor(**options).fit(folder / "fit.csv", "claims", "w", "a")
    usual = CASGDRegressor(**options).fit(X, COUNTS, columns["w"], columns["a"])
    for name, column in (("fit", "a"), ("other", "b"), ("both", "b")):
        path, offset = folder / f"{name}.csv", columns[column]
        np.testing.assert_allclose(model.predict(path, offset=column), usual.predict(X, offset), rtol=1e-9)
        for y in (None, "claims", COUNTS):
            weighted = model.score(path, y, sample_weight="w", offset=column)
            assert weighted == pytest.approx(usual.score(X, COUNTS, columns["w"], offset), abs=1e-9)
            assert model.score(path, y, offset=column) == pytest.approx(usual.score(X, COUNTS, None, offset), abs=1e-9)
    for offset in (None, columns["a"]):
        np.testing.assert_allclose(model.predict(folder / "fit.csv", offset), usual.predict(X, columns["a"]), rtol=1e-9)


def test_a_classifier_s_columns_are_named_as_well(tables):
    folder, columns = tables
    options = {"max_iter": 2, "tol": None, "random_state": 0, "recipe": "fp64"}
    model = CASGDClassifier(**options).fit(folder / "animals.csv", "animal", "w")
    usual = CASGDClassifier(**options).fit(X, LABELS, columns["w"])
    for y in (None, "animal", LABELS):
        assert model.score(folder / "animals.csv", y, "w") == pytest.approx(usual.score(X, LABELS, columns["w"]))
    np.testing.assert_array_equal(model.predict(folder / "animals.csv"), usual.predict(X))
    assert model.fit(X, LABELS)._inputs == {}


@pytest.mark.parametrize("base", [0, 1])
def test_libsvm_columns_count_from_where_the_fit_s_did(base, folder):
    rows = [f"{y} " + " ".join(f"{j + base}:{v}" for j, v in enumerate(x)) for x, y in zip(X, LABELS, strict=True)]
    (folder / "fit.svm").write_text("\n".join(rows) + "\n")
    (folder / "new.svm").write_text(f"1 {base + 1}:1 {base + 5}:-1\n0 {base + 1}:1\n")
    model = CASGDClassifier(max_iter=2, tol=None, random_state=0, warm_start=True).fit(folder / "fit.svm")
    new = np.zeros((2, 6), dtype=np.float32)
    new[:, 1], new[0, 5] = 1, -1
    np.testing.assert_allclose(model.predict_proba(folder / "new.svm"), model.predict_proba(new), rtol=1e-6)
    model.fit(folder / "new.svm")
    np.save(folder / "all.npy", new)
    np.testing.assert_allclose(model.predict_proba(folder / "all.npy"), model.predict_proba(new), rtol=1e-6)


def test_columns_that_cannot_be_named(tables, folder):
    path = tables[0]
    model = CASGDRegressor("poisson", max_iter=1, tol=None).fit(path / "fit.csv", "claims", "w", "a")
    sparse = CASGDClassifier(max_iter=1, tol=None).fit(folder / "train.svm")
    for ask, said in (
        (lambda: model.fit(X, COUNTS, offset="a"), "offset='a' names a column, and X is no file; pass the values"),
        (lambda: model.predict(X, offset="a"), "offset='a' names a column, and X is no file"),
        (lambda: model.score(X, COUNTS, sample_weight="w"), "sample_weight='w' names a column, and X is no file"),
        (lambda: model.score(X, "claims"), "y='claims' names a column, and X is no file"),
        (lambda: model.predict(path / "fit.csv", offset="off"), "no column 'off'"),
        (lambda: model.score(path / "animals.csv"), "no column 'claims'"),
        (lambda: sparse.predict(folder / "train.svm", offset="a"), "offset is for files with named columns"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            ask()


@pytest.mark.parametrize("recipe", ["fp64", "C", "D"])
def test_files_are_read_in_the_recipe_s_format(folder, recipe):
    """D rounds the operands of the update too, which is not compiled; the rest is."""
    for path, y, usual in (("numbers.csv", "claims", CASGDRegressor), ("train.svm", None, CASGDClassifier)):
        model = usual(max_iter=4, tol=None, random_state=0, recipe=recipe).fit(folder / path, y)
        assert model.ran_ == f"sgd, {'torch' if recipe == 'D' else 'compiled'}, {recipe}"


@pytest.mark.parametrize(
    ("header", "said"),
    [("b,a,y", "feature 1 of .*later.csv is 'b' where the model has 'a'"), ("a,c,y", "feature 2 of .* 'c' .* 'b'")],
)
def test_a_later_file_has_the_columns_of_the_first(folder, header, said):
    rows = [f"{j % 7},{j % 5},{j % 3}" for j in range(30)]
    for name, top in (("first.csv", "a,b,y"), ("later.csv", header)):
        (folder / name).write_text("\n".join([top, *rows]))
    warm = CASGDRegressor(warm_start=True).fit(folder / "first.csv", "y")
    for call in (warm.fit, CASGDRegressor().fit(folder / "first.csv", "y").partial_fit, warm.summary):
        with pytest.raises(ValueError, match=said):
            call(folder / "later.csv", "y")


@pytest.mark.parametrize("name", ["offset", "exposure"])
def test_vectors_may_be_read_only(name):
    """Those of pandas are, and torch warns of them."""
    y, w, more = COUNTS.copy(), np.ones(60), np.ones(60)
    for one in (y, w, more):
        one.flags.writeable = False
    model = CASGDRegressor("poisson").fit(X, y, w, **{name: more})
    assert np.isfinite(model.score(X, y, w, **{name: more}))


def test_a_sparse_file(folder):
    model = CASGDClassifier(max_iter=4, tol=None, random_state=0).fit(str(folder / "train.svm"))
    usual = CASGDClassifier(max_iter=4, tol=None, random_state=0).fit(X.astype(np.float32), LABELS)
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=1e-4)
    assert model.score(folder / "train.svm") == usual.score(X, LABELS)


def test_a_sparse_matrix_stays_on_the_cpu():
    with pytest.raises(ValueError, match=r"device='cuda' needs a dense X, and this one is sparse"):
        CASGDClassifier(device="cuda").fit(scipy.sparse.csr_matrix(X), LABELS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_a_gpu_that_is_not_there():
    with pytest.raises(BackendUnavailable, match="device='cuda', but there is no CUDA GPU here; leave device out"):
        CASGDRegressor(device="cuda").fit(X, COUNTS)


@pytest.mark.parametrize("labels", [[0, 1], [0, 2], [3, 70_000], [-1, 1], [0.0, 1.0], [False, True]], ids=str)
def test_many_labels_are_counted_as_few_are(labels):
    few = np.array(labels)[np.random.default_rng(0).integers(0, 2, 40)]
    y, X = np.tile(few, 2000), np.tile(np.random.default_rng(1).standard_normal((40, 2)), (2000, 1))
    many, model = CASGDClassifier(random_state=0).fit(X, y), CASGDClassifier(random_state=0).fit(X[:40], few)
    assert many.classes_.tolist() == model.classes_.tolist() == sorted(labels)
    assert many.classes_.dtype == model.classes_.dtype == few.dtype
    assert many.coef_ == pytest.approx(model.coef_, rel=1e-5)
    assert many.score(X, y) == model.score(X[:40], few)
