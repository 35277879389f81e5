"""The papers' networks and their batches of images."""

import pytest
import torch

from benchmarks.papers.nuqsgd.batches import InMemory, cropped, open_batches, rows_of
from benchmarks.papers.nuqsgd.images import synthetic_images
from benchmarks.papers.nuqsgd.networks import LARGE, NETWORKS, Block, CifarResNet, ImageNetResNet, network

N_PARAMETERS = {
    "resnet-20": 269_722,
    "resnet-56": 853_018,
    "resnet-110": 1_727_962,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
}
CPU = torch.device("cpu")


def n_classes(name):
    return 1000 if name in LARGE else 10


@pytest.mark.parametrize("name", N_PARAMETERS)
def test_networks_have_the_published_numbers_of_parameters(name):
    with torch.device("meta"):
        net = network(name, n_classes(name), (3, 32, 32))
    assert sum(p.numel() for p in net.parameters()) == N_PARAMETERS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_layers_that_their_names_say(name):
    with torch.device("meta"):
        net = network(name, n_classes(name), (3, 32, 32))
    weighted = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    shortcuts = [m for n, m in net.named_modules() if "shortcut" in n and isinstance(m, torch.nn.Conv2d)]
    assert len(weighted) - len(shortcuts) == int(name.split("-")[1])


@pytest.mark.parametrize(
    ("name", "shape"), [("resnet-8", (1, 28, 28)), ("resnet-14", (3, 33, 31)), ("resnet-18", (3, 64, 64))]
)
def test_scores_come_out_for_any_size_and_every_parameter_has_a_gradient(name, shape):
    net = network(name, 7, shape)
    scores = net(torch.randn(2, *shape))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())


def test_a_block_whose_branch_is_zero_is_its_shortcut():
    block = Block(4, 8).eval()
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 4, 6, 6)
    with torch.no_grad():
        y = block(x)
    assert torch.equal(y[:, :4], x[:, :, ::2, ::2])
    assert not y[:, 4:].any()


@pytest.mark.parametrize("name", ["resnet-8", "resnet-20", "resnet-18", "resnet-50"])
def test_every_filter_learns_from_the_start(name):
    """Where a block adds channels by zeros, a last scale of 0 would leave these at relu(0), which has no gradient."""
    torch.manual_seed(0)
    net = network(name, 7, (3, 32, 32))
    scores = net(torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    torch.nn.functional.cross_entropy(scores, torch.arange(8) % 7).backward()
    still = {path: int((p.grad.flatten(1) == 0).all(1).sum()) for path, p in net.named_parameters() if p.dim() > 1}
    assert not {path: n for path, n in still.items() if n}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: network("vgg-16", 10, (3, 32, 32)), "unknown model 'vgg-16'"),
        (lambda: CifarResNet(21), "6 n \\+ 2, such as 20"),
        (lambda: ImageNetResNet(101), "one of 18, 34, 50, got 101"),
    ],
)
def test_unknown_networks_are_told(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_crop_is_a_part_of_the_padded_image_or_of_its_mirror_image():
    x = torch.rand(64, 1, 5, 6)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    found = cropped(x, (5, 6), 2, torch.Generator().manual_seed(0))
    ways = set()
    for image, whole in zip(found, padded, strict=True):
        match = [
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(image.flip(2) if mirrored else image, whole[:, top : top + 5, left : left + 6])
        ]
        assert len(match) == 1
        ways |= set(match)
    assert len(ways) > 25


def test_batches_repeat_and_an_epoch_has_every_row_once():
    rows = [rows_of(50, t, 12, seed=3) for t in range(8)]
    assert [len(part) for part in rows] == [12] * 8
    for epoch in (rows[:4], rows[4:]):
        assert len(set(torch.cat(epoch).tolist())) == 48
    assert not torch.equal(rows[0], rows[4])
    assert torch.equal(rows_of(50, 5, 12, seed=3), rows[5])
    assert not torch.equal(rows_of(50, 0, 12, seed=4), rows[0])


def test_images_are_normalised_and_evaluated_as_they_are():
    batches = InMemory(synthetic_images(64, 16), CPU)
    x, y = next(batches.evaluation("train", 64))
    assert x.mean((0, 2, 3)).abs().max() < 1e-3
    assert x.std((0, 2, 3)) == pytest.approx([1.0] * 3, abs=1e-3)
    assert len(next(batches.evaluation("test", 5))[1]) == 5
    batch = batches.batch(torch.arange(8), torch.Generator().manual_seed(0))
    again = batches.batch(torch.arange(8), torch.Generator().manual_seed(0))
    assert torch.equal(batch[0], again[0])
    assert torch.equal(batch[1], y[:8])
    assert not torch.equal(batch[0], x[:8])


def test_imagenet_is_a_folder_of_folders(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for part, n in (("train", 3), ("val", 2)):
        for name, colour in (("dark", (10, 10, 10)), ("light", (240, 240, 240))):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(n):
                Image.new("RGB", (30, 40), colour).save(tmp_path / part / name / f"{i}.jpeg")
    batches = open_batches("imagenet", str(tmp_path), CPU)
    assert (batches.n_train, batches.n_classes, batches.shape) == (6, 2, (3, 224, 224))
    x, y = batches.batch(torch.tensor([0, 5]), torch.Generator())
    assert x.shape == (2, 3, 224, 224)
    assert y.tolist() == [0, 1]
    assert x[0].mean() < 0 < x[1].mean()
    assert [y.tolist() for _, y in batches.evaluation("test", 2)] == [[0, 1]]
    assert open_batches("imagenet", str(tmp_path), CPU, most=2).n_train == 2
    with pytest.raises(ValueError, match="give the folder that has train/ and val/"):
        open_batches("imagenet", None, CPU)
