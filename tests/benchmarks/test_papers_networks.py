"""The papers' networks and their batches of images."""

from functools import partial

import pytest
import torch

from benchmarks.papers.nuqsgd.images import Images, ImageSet, synthetic_images
from benchmarks.papers.nuqsgd.networks import (
    LARGE,
    NETWORKS,
    Block,
    CifarResNet,
    ImageNetResNet,
    Scores,
    network,
)
from benchmarks.training.data import PADDING, Crops
from benchmarks.training.networks import OfModule, cross_entropy
from benchmarks.training.run import Weights, open_data
from laconic.kernels import Stream

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


@pytest.mark.parametrize("way", ["in_turn", "together"])
@pytest.mark.parametrize(("name", "side"), [("resnet-8", 32), ("resnet-18", 64)])
def test_workers_have_the_gradients_of_torchs_layers(name, side, way, monkeypatch):
    """Gradients and running statistics of 3 workers of each of 2 seeds."""
    before, shape = torch.get_default_dtype(), (3, side, side)
    torch.set_default_dtype(torch.float64)
    try:
        made = OfModule(partial(network, name, 7, shape), 3)
        p = Weights(made, range(2), CPU).replicas(3)
        buffers = {key: b.expand(6, *b.shape).clone() for key, b in made.buffers().items()}
        x, y = torch.randn(6, 4, *shape), torch.randint(7, (6, 4))
        scores = getattr(made, way)({**p, **buffers}, x)
        found = torch.autograd.grad(cross_entropy(scores, y).sum(), list(p.values()))
        monkeypatch.setattr(Scores, "forward", torch.nn.Linear.forward)
        for i in range(6):
            alone = network(name, 7, shape)
            alone.load_state_dict({**{key: v[i].detach() for key, v in p.items()}, **made.buffers()})
            torch.nn.functional.cross_entropy(alone(x[i]), y[i]).backward()
            for key, together in zip(p, found, strict=True):
                own = alone.get_parameter(key).grad
                assert (own - together[i]).norm() < 1e-4 * own.norm()  # the loss is of float32
            for key, buffer in alone.named_buffers():
                if "num" not in key:
                    torch.testing.assert_close(buffer, buffers[key][i])
    finally:
        torch.set_default_dtype(before)


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
    part = Images(torch.randint(256, (64, 1, 5, 6), dtype=torch.uint8), torch.zeros(64, dtype=torch.int64))
    crops = Crops(ImageSet("made up", part, part, 1, ""), CPU)
    examples = crops.draw(1, 64, Stream(0))[0]
    found = (crops.batch(examples)[0] * crops.scale + crops.mean).round()
    colour = float(crops.mean.round())
    padded = torch.nn.functional.pad(part.x.float(), (PADDING,) * 4, value=colour)
    ways = set()
    for image, code in zip(found, examples.tolist(), strict=True):
        row, place = divmod(code // 2, crops.height * crops.width)
        top, left = divmod(place, crops.width)
        cut = padded[row, :, top : top + 5, left : left + 6]
        torch.testing.assert_close(image, cut.flip(2) if code % 2 else cut)
        ways.add((top, left, code % 2))
    assert len(ways) > 35


def test_examples_repeat_and_a_round_has_every_image_once():
    crops = Crops(synthetic_images(50, 10), CPU)
    pixels = 2 * crops.height * crops.width
    assert crops.round_steps(12) == 4
    rounds = [crops.draw(4, 12, Stream(3, step=i)) for i in (0, 1, 0)]
    assert [len(set((one // pixels).flatten().tolist())) for one in rounds] == [48] * 3
    assert torch.equal(rounds[0], rounds[2])
    assert not torch.equal(rounds[0], rounds[1])
    assert not torch.equal(rounds[0], crops.draw(4, 12, Stream(4)))


def test_images_are_normalised_and_evaluated_as_they_are():
    images = synthetic_images(64, 16)
    (x, y), *others = Crops(images, CPU).evaluation(64)["train"]
    assert not others
    assert x.shape == (1, 64, 3, 32, 32)
    assert x.mean((0, 1, 3, 4)).abs().max() < 1e-3
    assert x.std((0, 1, 3, 4)) == pytest.approx([1.0] * 3, abs=1e-3)
    assert torch.equal(y[0], images.train.y)


def test_imagenet_is_a_folder_of_folders(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for part, n in (("train", 3), ("val", 2)):
        for name, colour in (("dark", (10, 10, 10)), ("light", (240, 240, 240))):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(n):
                Image.new("RGB", (30, 40), colour).save(tmp_path / part / name / f"{i}.jpeg")
    data = open_data("imagenet", str(tmp_path), "cpu")
    assert (data.round_steps(2), data.n_classes, data.shape) == (3, 2, (3, 224, 224))
    x, y = data.batch(data.draw(3, 2, Stream(0)))
    assert x.shape == (3, 2, 3, 224, 224)
    assert (x.mean((2, 3, 4)) > 0).equal(y.bool())
    assert [y.tolist() for _, y in data.evaluation(3)["held out"]] == [[[0, 0, 1]], [[1]]]
    assert open_data("imagenet", str(tmp_path), "cpu", 2).round_steps(1) == 2
    with pytest.raises(ValueError, match="give the folder that has train/ and val/"):
        open_data("imagenet", None, "cpu")
