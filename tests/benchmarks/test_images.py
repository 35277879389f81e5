"""Images come out of every kind of file as they went in, and a file that is not what it should be is told."""

import gzip
import sys

import numpy as np
import pytest
import torch

from benchmarks.papers.nuqsgd.image_folder import ImageFolder, require_pillow
from benchmarks.papers.nuqsgd.images import read_images, synthetic_images
from laconic.data import BadTable, MalformedFile

RNG = np.random.default_rng(0)
N_TRAIN, N_TEST = 10, 3


def arrays(shape):
    return {
        "x_train": RNG.integers(0, 256, (N_TRAIN, *shape), np.uint8),
        "y_train": np.arange(N_TRAIN, dtype=np.uint8),
        "x_test": RNG.integers(0, 256, (N_TEST, *shape), np.uint8),
        "y_test": np.arange(N_TEST, dtype=np.uint8),
    }


def write_npz(name):
    def write(folder, made):
        np.savez(folder / name, **made)

    return write


def write_bin(folder, made):
    root = folder / "cifar-10-batches-bin"
    root.mkdir()
    records = [
        np.concatenate([made[f"y_{part}"][:, None], made[f"x_{part}"].reshape(len(made[f"y_{part}"]), -1)], axis=1)
        for part in ("train", "test")
    ]
    for i in range(5):
        (root / f"data_batch_{i + 1}.bin").write_bytes(records[0][2 * i : 2 * i + 2].tobytes())
    (root / "test_batch.bin").write_bytes(records[1].tobytes())


def write_idx(suffix):
    def write(folder, made):
        for part, name in (("train", "train"), ("test", "t10k")):
            for kind, x in (("images", made[f"x_{part}"][:, 0]), ("labels", made[f"y_{part}"])):
                head = bytes([0, 0, 8, x.ndim]) + b"".join(n.to_bytes(4, "big") for n in x.shape)
                packed = gzip.compress(head + x.tobytes()) if suffix else head + x.tobytes()
                (folder / f"{name}-{kind}-idx{x.ndim}-ubyte{suffix}").write_bytes(packed)

    return write


FILES = {
    "cifar10 npz": ("cifar10", (3, 32, 32), write_npz("cifar10.npz")),
    "cifar10 bin": ("cifar10", (3, 32, 32), write_bin),
    "fashion npz": ("fashion-mnist", (1, 28, 28), write_npz("fashion_mnist.npz")),
    "fashion idx": ("fashion-mnist", (1, 28, 28), write_idx("")),
    "fashion idx gz": ("fashion-mnist", (1, 28, 28), write_idx(".gz")),
}


@pytest.mark.parametrize(("name", "shape", "write"), FILES.values(), ids=FILES)
def test_files_give_back_what_was_written(name, shape, write, tmp_path):
    made = arrays(shape)
    write(tmp_path, made)
    found = read_images(name, tmp_path)
    assert (found.name, found.shape, found.n_classes) == (name, shape, N_TRAIN)
    assert str(tmp_path) not in found.source
    for part in ("train", "test"):
        images = getattr(found, part)
        assert images.x.dtype == torch.uint8
        assert torch.equal(images.x, torch.from_numpy(made[f"x_{part}"]))
        assert images.y.tolist() == made[f"y_{part}"].tolist()
    assert len(found.head(4).train) == 4


def test_the_files_of_the_binary_version_may_lie_in_the_folder_itself(tmp_path):
    made = arrays((3, 32, 32))
    write_bin(tmp_path, made)
    assert len(read_images("cifar10", tmp_path / "cifar-10-batches-bin").train) == N_TRAIN


def spoil_bin(folder):
    write_bin(folder, arrays((3, 32, 32)))
    (folder / "cifar-10-batches-bin" / "data_batch_3.bin").write_bytes(b"\0" * 3072)


def leave_out_a_batch(folder):
    write_bin(folder, arrays((3, 32, 32)))
    (folder / "cifar-10-batches-bin" / "test_batch.bin").unlink()


def spoil_idx(data):
    def spoil(folder):
        write_idx(".gz")(folder, arrays((1, 28, 28)))
        (folder / "train-images-idx3-ubyte.gz").write_bytes(data)

    return spoil


def npz(**changed):
    return lambda folder: np.savez(folder / "cifar10.npz", **{**arrays((3, 32, 32)), **changed})


def no_zip(folder):
    (folder / "cifar10.npz").write_bytes(b"not a zip file")


def pickled(folder):
    (folder / "cifar-10-batches-py").mkdir()


def without_labels(folder):
    made = arrays((3, 32, 32))
    del made["y_test"]
    np.savez(folder / "cifar10.npz", **made)


WRONG = {
    "a short record": ("cifar10", spoil_bin, MalformedFile, "data_batch_3.bin: expected records of 3073 bytes"),
    "a batch is missing": ("cifar10", leave_out_a_batch, BadTable, "has no test_batch.bin"),
    "nothing there": ("cifar10", lambda folder: None, BadTable, "cifar-10-binary.tar.gz"),
    "pickles": ("cifar10", pickled, BadTable, "pickles run code"),
    "no zip": ("cifar10", no_zip, MalformedFile, "not an .npz file of plain arrays"),
    "objects": ("cifar10", npz(y_train=np.array([{}] * N_TRAIN)), MalformedFile, "not an .npz file of plain arrays"),
    "an array is missing": ("cifar10", without_labels, MalformedFile, "y_test is missing"),
    "floats": ("cifar10", npz(x_test=np.zeros((3, 3, 32, 32))), MalformedFile, "x_test must be bytes"),
    "labels are no row": ("cifar10", npz(y_test=np.zeros((3, 1), int)), MalformedFile, "y_test must be whole numbers"),
    "too few labels": ("cifar10", npz(y_test=np.zeros(2, int)), BadTable, "3 test images and 2 labels"),
    "negative labels": ("cifar10", npz(y_test=np.full(3, -1)), BadTable, "labels go from -1"),
    "other sizes": ("cifar10", npz(x_test=np.zeros((3, 3, 8, 8), np.uint8)), BadTable, "to train on"),
    "no idx there": ("fashion-mnist", lambda folder: None, BadTable, "nor train-images-idx3-ubyte.gz"),
    "no idx file": ("fashion-mnist", spoil_idx(gzip.compress(b"\0\0\x0d\3")), MalformedFile, "found 00 00 0d 03"),
    "an idx file cut short": (
        "fashion-mnist",
        spoil_idx(gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 2, 1]))),
        MalformedFile,
        "9 × 2 × 2, and 1 bytes follow",
    ),
    "no gzip": ("fashion-mnist", spoil_idx(b"plain"), MalformedFile, "damaged"),
}


@pytest.mark.parametrize(("name", "write", "error", "said"), WRONG.values(), ids=WRONG)
def test_wrong_files_are_told(name, write, error, said, tmp_path):
    write(tmp_path)
    with pytest.raises(error, match=said):
        read_images(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "folder", "said"),
    [("mnist", None, "unknown data set 'mnist'"), ("cifar10", None, "give their folder with --data")],
)
def test_wrong_names_are_told(name, folder, said):
    with pytest.raises(ValueError, match=said):
        read_images(name, folder)


def test_synthetic_images_repeat_and_can_be_told_apart():
    one, two = synthetic_images(64, 16), synthetic_images(64, 16)
    assert torch.equal(one.train.x, two.train.x)
    x, y = one.train.x.float().flatten(1), one.train.y
    means = torch.stack([x[y == k].mean(0) for k in y.unique()])
    nearest = torch.cdist(one.test.x.float().flatten(1), means).argmin(1)
    assert (y.unique()[nearest] == one.test.y).float().mean() > 0.9


def make_folder(root, sizes):
    for name, n in sizes.items():
        (root / name).mkdir(parents=True)
        for i in range(n):
            (root / name / f"{i}.png").touch()


def test_folders_are_classes_in_order(tmp_path):
    make_folder(tmp_path / "train", {"cat": 3, "ant": 2})
    make_folder(tmp_path / "val", {"cat": 1})
    (tmp_path / "train" / "ant" / "notes.txt").touch()
    train = ImageFolder.open(tmp_path / "train")
    assert (train.classes, train.labels) == (("ant", "cat"), (0, 0, 1, 1, 1))
    assert ImageFolder.open(tmp_path / "val", train.classes).labels == (1,)
    assert train.thinned(3).labels == (0, 1, 1)
    assert train.thinned(5) == train


def strange_class(root):
    make_folder(root, {"dog": 1})


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda root: None, "there is no folder"),
        (lambda root: root.mkdir(), "has no images"),
        (strange_class, "'dog', which there are no images of to train on"),
    ],
)
def test_wrong_folders_are_told(write, said, tmp_path):
    write(tmp_path / "val")
    with pytest.raises(BadTable, match=said):
        ImageFolder.open(tmp_path / "val", ["cat"])


def test_without_pillow_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadTable, match=r"pip install 'laconic\[benchmarks\]'"):
        require_pillow()


def test_image_files_are_scaled_and_cut(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "a").mkdir()
    left, right = (20, 0, 0), (0, 0, 200)
    image = Image.new("RGB", (40, 20), left)
    image.paste(right, (20, 0, 40, 20))
    image.save(tmp_path / "a" / "wide.png")
    (tmp_path / "a" / "broken.png").write_bytes(b"no image")
    folder = ImageFolder.open(tmp_path)
    x, y = folder.load([1], size=8, short_side=10)
    assert (x.shape, x.dtype, y.tolist()) == ((1, 3, 8, 8), torch.uint8, [0])
    assert x[0, :, 4, 0].tolist() == list(left)
    assert x[0, :, 4, 7].tolist() == list(right)
    with pytest.raises(MalformedFile, match=r"broken\.png: cannot be decoded"):
        folder.load([0])
