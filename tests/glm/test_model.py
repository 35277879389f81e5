"""A model says the same before and after it was on disk, and a file that is no model is told apart."""

import errno
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.sparse import csr_array

import laconic
from laconic.atomic_write import NotWritten
from laconic.errors import CorruptPayload
from laconic.glm.families import FAMILIES
from laconic.glm.model import Model, load_tensors


def a_model(family: str, dtype=torch.float32) -> Model:
    generator = torch.Generator().manual_seed(0)
    several = ("a", "b", "c")
    classes = {"multinomial": several, "one_vs_rest": several, "logistic": (-1, 1)}.get(family)
    n_outputs = 3 if classes == several else 1
    coef = torch.randn(n_outputs, 4, generator=generator, dtype=dtype)
    names = ("p", "q", "r", "s=é")
    return Model(
        coef, torch.arange(n_outputs).to(dtype), family, classes, names, {"target": "y"}, {"s": 2}, {"r2": 0.5}
    )


X = torch.randn(11, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_saved_is_what_is_loaded(family, dtype, tmp_path):
    model = a_model(family, dtype)
    model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert torch.equal(loaded.coef, model.coef)
    assert torch.equal(loaded.intercept, model.intercept)
    for name in ("family", "classes", "feature_names", "inputs", "settings", "metrics"):
        assert getattr(loaded, name) == getattr(model, name)
    assert (loaded.predict(X) == model.predict(X)).all()


def test_equal_models_are_equal_bytes(tmp_path):
    paths = [tmp_path / str(i) for i in range(20)]
    for path in paths:
        a_model("poisson").save(path)
    assert len({path.read_bytes() for path in paths}) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_matrix_gives_the_same(family):
    model = a_model(family)
    margins = model.margins(X)
    assert torch.allclose(margins, X @ model.coef.T + model.intercept, atol=1e-6)
    assert torch.equal(model.margins(X.numpy()), margins)
    assert torch.allclose(model.margins(csr_array(X.numpy())), margins, atol=1e-5)
    offset = torch.linspace(-1, 1, len(X))
    assert torch.allclose(model.margins(X, offset), margins + offset[:, None])
    assert model.margins(X[:0]).shape == (0, len(model.coef))
    wide, A = a_model(family, torch.float64), X.double().numpy() / 3
    assert np.allclose(wide.margins(csr_array(A)), wide.margins(A), rtol=1e-13, atol=1e-14)


def test_predictions():
    logistic, multinomial = a_model("logistic"), a_model("multinomial")
    p = logistic.predict_proba(X)
    assert torch.allclose(p.sum(1), torch.ones(len(X)))
    assert logistic.predict(X).tolist() == np.where(p[:, 1] > 0.5, 1, -1).tolist()
    q = multinomial.predict_proba(X)
    assert multinomial.predict(X).tolist() == [multinomial.classes[k] for k in q.argmax(1)]
    assert torch.allclose(torch.from_numpy(a_model("poisson").predict(X)), a_model("poisson").margins(X)[:, 0].exp())
    with pytest.raises(ValueError, match="no classes"):
        a_model("linear").predict_proba(X)
    with pytest.raises(ValueError, match="X has 3 columns and the model 4"):
        logistic.margins(X[:, :3])


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    a_model("linear").save(path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match=r"no room for the .* bytes of .*model.safetensors"):
        a_model("poisson").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def damaged(path):
    model = a_model("logistic")
    model.save(path)
    tensors, metadata = load_tensors(path, "a model")
    about = json.loads(metadata["model"])
    nan = tensors["coef"].clone()
    nan[0, 1] = float("nan")

    def described(**changes):
        return {**metadata, "model": json.dumps(about | changes)}

    return {
        "no metadata": (tensors, {}),
        "another version": (tensors, {**metadata, "laconic_model": "99"}),
        "no JSON": (tensors, {**metadata, "model": "{"}),
        "deep JSON": (tensors, {**metadata, "model": "[" * 100_000}),
        "a list": (tensors, {**metadata, "model": "[]"}),
        "unknown family": (tensors, described(family="hinge")),
        "family no name": (tensors, described(family=3)),
        "three classes": (tensors, described(classes=["a", "b", "c"])),
        "no classes": (tensors, described(classes=None)),
        "classes no list": (tensors, described(classes="ab")),
        "names": (tensors, described(feature_names=["p"])),
        "settings": (tensors, described(settings=[])),
        "no coef": ({"intercept": tensors["intercept"]}, metadata),
        "more tensors": ({**tensors, "other": torch.zeros(2)}, metadata),
        "not finite": ({**tensors, "coef": nan}, metadata),
        "integers": ({**tensors, "coef": torch.zeros(1, 4, dtype=torch.int64)}, metadata),
        "half": ({"coef": tensors["coef"].half(), "intercept": tensors["intercept"].half()}, metadata),
        "shape": ({**tensors, "coef": torch.zeros(4)}, metadata),
    }


def test_a_hostile_file_is_told_apart(tmp_path):
    path = tmp_path / "model.safetensors"
    for name, (tensors, metadata) in damaged(path).items():
        save_file(tensors, path, metadata)
        assert refused(path), name


def refused(path):
    try:
        Model.load(path)
    except CorruptPayload as error:
        return "is not a model of laconic" in str(error)
    return False


def test_cut_or_flipped_bytes_are_told_apart(tmp_path):
    path = tmp_path / "model.safetensors"
    a_model("logistic").save(path)
    good = path.read_bytes()
    for size in (0, 1, 7, 8, 20, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(CorruptPayload):
            Model.load(path)
    path.write_bytes(b"\xff" * 8 + good[8:])
    with pytest.raises(CorruptPayload):
        Model.load(path)
    with pytest.raises(CorruptPayload, match="there is no file"):
        Model.load(tmp_path / "none")


def test_estimators_and_the_command_line_share_models(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    fitted = laconic.CASGDClassifier(random_state=0).fit(X, y)
    fitted.save(tmp_path / "model.safetensors")
    model = laconic.load(tmp_path / "model.safetensors")
    assert (model.predict(X) == fitted.predict(X)).all()
    np.testing.assert_array_equal(model.coef.numpy(), fitted.coef_)
