"""The suite `training`: replicas do not see each other, members are the library's, runs are kept and not run again."""

import math
import sys
from dataclasses import replace
from itertools import pairwise
from unittest import mock

import pytest
import torch

from benchmarks.pages import common
from benchmarks.pages import training as page
from benchmarks.training import data, jobs, members
from benchmarks.training.ddp_loss import DDPLossOptions
from benchmarks.training.jobs import DECIDING, OTHERS, planned
from benchmarks.training.members import FLOOR, MEMBERS, OPTIMIZER, TENSOR, Member, Sender, dithered, rotated
from benchmarks.training.networks import ByteTransformer, ConvNet
from benchmarks.training.run import Job, Weights, train
from laconic.bench.ddp import CODECS
from laconic.bench.ranks import PAPERS_BUCKET
from laconic.codec import make_codec
from laconic.errors import InvalidOption
from laconic.kernels import Stream
from laconic.quantizers import Dithered, Identity, Rotated

CPU = torch.device("cpu")
NETWORKS = {
    "lm": (ByteTransformer(32, 1, 8), lambda m: torch.randint(256, (m, 3, 8)), lambda m: torch.randint(256, (m, 3, 8))),
    "cnn": (ConvNet((2, 5, 6), 4, 8), lambda m: torch.randn(m, 3, 2, 5, 6), lambda m: torch.randint(4, (m, 3))),
}
TINY = ["training", "--steps", "3", "--seeds", "2", "--batch-size", "2", "--width", "32"]


@pytest.fixture(autouse=True)
def few_windows(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(data, "VALIDATED", 4)


@pytest.mark.parametrize(("network", "x", "y"), NETWORKS.values(), ids=NETWORKS)
def test_a_replicas_gradient_is_its_own(network, x, y):
    torch.manual_seed(0)
    p = {name: value.requires_grad_() for name, value in Weights(network, range(2), CPU).replicas(2).items()}
    x, y = x(4), y(4)
    together = torch.autograd.grad(network.loss(p, x, y).sum(), list(p.values()))
    for i in range(4):
        own = {name: value[i : i + 1].detach().requires_grad_() for name, value in p.items()}
        alone = torch.autograd.grad(network.loss(own, x[i : i + 1], y[i : i + 1]).sum(), list(own.values()))
        for one, all_of_them in zip(alone, together, strict=True):
            torch.testing.assert_close(one[0], all_of_them[i], rtol=1e-4, atol=1e-6)


def test_a_convolution_is_torchs():
    net = ConvNet((2, 5, 6), 4, 8)
    p = {name: value[None] for name, value in net.initial(3).items()}
    x = torch.randn(1, 3, 2, 5, 6)
    h = x[0]
    for i in range(4):
        weight = p[f"{i}.conv.weight"][0].unflatten(1, (3, 3, -1)).permute(0, 3, 1, 2)
        h = torch.nn.functional.conv2d(h, weight, p[f"{i}.conv.bias"][0], stride=2 if i else 1, padding=1)
        h = torch.nn.functional.group_norm(h, 1).relu()
    scores = torch.nn.functional.linear(h.permute(0, 2, 3, 1).flatten(1), p["head.weight"][0], p["head.bias"][0])
    y = torch.tensor([[0, 1, 2]])
    torch.testing.assert_close(net.loss(p, x, y)[0], torch.nn.functional.cross_entropy(scores, y[0]))


@pytest.mark.parametrize("bucket_size", [512, 2**20])
def test_dither_has_the_quantizers_step_and_is_unbiased(bucket_size):
    quantizer = Dithered(0.3, bucket_size=bucket_size)
    v = torch.randn(2, 1300, generator=torch.Generator().manual_seed(1)) * torch.tensor([[1.0], [100.0]])
    steps = [quantizer.steps(row)[0].repeat_interleave(min(bucket_size, 1300))[:1300] for row in v]
    errors = torch.stack([(dithered(v, quantizer) - v) / torch.stack(steps) for _ in range(100)])
    assert errors.abs().max() < 0.5 + 1e-3
    assert errors.square().mean() == pytest.approx(1 / 12, rel=0.02)
    assert errors.mean(0).abs().max() < 6 / (12 * 100) ** 0.5


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_rotated_has_the_quantizers_error_and_is_unbiased(bits):
    quantizer = Rotated(bits)
    v = torch.randn(2, 3072).exp() * torch.tensor([[1.0], [100.0]])
    v[:, 1024:2048] = 0.0
    decoded = torch.stack([rotated(v, quantizer) for _ in range(30)])
    theirs = torch.stack([quantizer.dequantize(quantizer.quantize(v, Stream(i))).view_as(v) for i in range(30)])
    for row in range(2):
        size = v[row].square().sum()
        torch.testing.assert_close((decoded[:, row] * v[row]).sum(1) / size, torch.ones(30), rtol=1e-4, atol=0)
        error = (decoded[:, row] - v[row]).square().sum(1).mean() / size
        assert error == pytest.approx(float((theirs[:, row] - v[row]).square().sum(1).mean() / size), rel=0.05)
        assert (decoded[:, row].mean(0) - v[row]).square().sum() / size < 1.2 * error / 30


@pytest.mark.parametrize("name", ["nuqsgd-4/512", "qsgdinf-4/512", "bf16", "ef-sign"])
def test_other_members_are_the_librarys(name):
    quantizer = MEMBERS[name].quantizer
    v = torch.randn(1, 8192 * 2)
    memory = {"memory": quantizer.new_memory(v)} if name == "ef-sign" else {}
    expected = quantizer.dequantize(quantizer.quantize(v, Stream(step=3), **memory))
    sent = Sender(MEMBERS[name], [0, v.numel()], CPU).send(v, None, 3)
    assert torch.equal(sent.decoded[0], expected)


def test_powersgd_sends_rank_two_whole_and_keeps_what_it_has_not_sent():
    """A matrix of rank 2 is sent whole once Q spans its rows; of any other, what is missing stays in the memory.

    Of the last, factors would be larger than half of it: each worker's is sent as it is.
    """
    shapes, workers = [(12, 10), (9, 15), (3, 5)], 2
    sender = Sender(MEMBERS["powersgd"], [0, 120, 255, 270], CPU, shapes=shapes, workers=workers)
    low = torch.cat([(torch.randn(4, n, 2) @ torch.randn(2, m)).flatten(1) for n, m in shapes], 1)
    g = torch.randn(4, 270)
    assert sender.send(g, None, 1).decoded is g
    for _ in range(30):
        decoded = sender.send(low, None, 2).decoded
        assert torch.equal(decoded[0, :255], decoded[1, :255])
        assert torch.equal(decoded[:, 255:], low[:, 255:])
        sender.memory.zero_()
    means = low.view(2, 2, -1).mean(1)
    torch.testing.assert_close(decoded[::2, :255], means[:, :255], rtol=1e-3, atol=1e-3)
    total = torch.stack([sender.send(g, None, t).decoded for t in range(2, 12)]).sum(0) + sender.memory
    torch.testing.assert_close(total, 10 * g, rtol=1e-4, atol=1e-4)
    sizes = MEMBERS["powersgd"].bits(g[0], Stream(), shapes)
    assert sizes == [32 * (2 * (12 + 10 + 9 + 15) + 3 * 5) / 270]


def test_weights_sent_as_differences_are_off_by_one_quantisation_however_many_were_sent():
    weights, quantizer = Weights(ByteTransformer(32, 1), range(2), CPU), MEMBERS["nuqsgd-4/512+differences-8"].weights
    weights.sent, C = weights.sent.clone(), weights.n_compressed
    for step in range(20):
        update = 0.01 * torch.randn(weights.flat.shape)
        with torch.no_grad():
            weights.flat += update
        weights.send(quantizer, Stream(step=step))
        assert 0 < (weights.flat[:, :C] - weights.sent[:, :C]).norm() < 0.02 * update[:, :C].norm()
        assert torch.equal(weights.flat[:, C:], weights.sent[:, C:])
    plain = Weights(ByteTransformer(32, 1), range(2), CPU)
    plain.send(None, Stream())
    assert plain.sent.data_ptr() == plain.flat.data_ptr()


def test_the_metric_is_floored_by_tensor_and_undone():
    cuts, g = [0, 3, 5], torch.randn(4, 5)
    second = torch.tensor([[4.0, 0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 9.0, 0.0]])
    sender = Sender(Member(Identity(), "", OPTIMIZER), cuts, CPU)
    floors = [FLOOR * (4 / 3) ** 0.5, FLOOR * 4.5**0.5]
    expected = [[2.0, floors[0], floors[0], 1.0, 1.0], [1e-30, 1e-30, 1e-30, 3.0, floors[1]]]
    torch.testing.assert_close(sender.scale(second), torch.tensor(expected))
    torch.testing.assert_close(sender.send(g, second, 1).decoded, g)
    assert sender.send(g, None, 0).decoded is g
    by_tensor = Sender(Member(Identity(), "", TENSOR), cuts, CPU).scale(g[:2])
    for a, b in pairwise(cuts):
        torch.testing.assert_close(by_tensor[:, a:b], g[:2, a:b].square().mean(1, keepdim=True).sqrt().expand(2, b - a))


@pytest.mark.parametrize("task", [*DECIDING, "resnet-8"])
def test_a_task_is_learnt(task):
    found = train(Job(task, "fp32", 2, 1, 60, 4, 32, images=64))["curve"]
    assert found[-1]["losses"][0] < found[0]["losses"][0]


GOES_ON = {
    "batch normalisation": Job("resnet-8", "nuqsgd-4/8192", 2, 1, None, 4, epochs=3, images=16),
    "error memory": Job("cnn-sgd", "ef-sign", 2, 2, 6, 4, 32),
    "second moments": Job("lm-adamw", "dithered-0.1@metric", 2, 1, 6, 2, 32),
    "factors": Job("lm-adamw", "powersgd", 2, 2, 6, 2, 32),
    "the last gradient": Job("lm-adamw", "dithered-0.1/tensor", 2, 1, 6, 2, 32),
    "weights as differences": Job("lm-adamw", "nuqsgd-4/512+differences-8", 2, 1, 6, 2, 32),
}


@pytest.mark.parametrize("job", GOES_ON.values(), ids=GOES_ON)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(job, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "ROUND", 2)
    monkeypatch.setattr(members, "PLAIN_STEPS", 1)
    clock = iter([0.0, 0.0, 0.0, 0.0, 9.0])
    monkeypatch.setattr(jobs.time, "time", lambda: next(clock, 9.0))
    jobs.run_job(job, tmp_path, until=5.0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
    with pytest.raises(InvalidOption, match="with workers = 2, not 3; give another folder"):
        jobs.check_same(jobs.file_of(job, tmp_path), job.settings(), replace(job, workers=3).settings())
    jobs.run_job(job, tmp_path, until=99.0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    found, never_stopped = jobs.result_of(job, tmp_path)["result"], train(job)
    assert found["losses"] == never_stopped["losses"]
    assert found["samples"] == never_stopped["samples"]


def test_a_process_whose_parent_was_killed_saves_and_ends(tmp_path, monkeypatch):
    job = Job("cnn-sgd", "fp32", 2, 1, 6, 4, 32)
    monkeypatch.setattr(jobs, "parent_process", lambda: mock.Mock(is_alive=lambda: False))
    monkeypatch.setattr(jobs.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        jobs.run_job(job, tmp_path, until=math.inf)
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]


def test_the_plan_has_known_members_and_fp32_first():
    for task in DECIDING:
        names = [*DECIDING[task], *OTHERS[task]]
        assert names[0] == "fp32"
        assert len(set(names)) == len(names)
        assert [name for name in names if name not in MEMBERS] == []
    plan = planned(list(DECIDING), [4, 16], None)
    assert len(set(plan)) == len(plan)


def test_runs_are_kept_gathered_and_not_mixed(tmp_path_factory, published, complains, monkeypatch):
    folder = tmp_path_factory.mktemp("runs")
    command = [*TINY, "--task", "cnn-sgd", "--workers", "2", "--out", str(folder)]
    complains([*command, "--seconds", "0"], "has no finished runs; give --seconds")
    first = published([*command, "--member", "fp32"])
    path = folder / "cnn-sgd-fp32-x2.json"
    made = path.stat().st_mtime_ns
    document = published([*command, "--member", "fp32,dithered-1"])
    rows = {row["contender"]: row for row in document["rows"]}
    assert path.stat().st_mtime_ns == made
    assert rows["fp32"]["losses"] == first["rows"][0]["losses"]
    assert rows["fp32"]["loss_over_fp32"] == 1.0
    ours = rows["dithered-1"]
    ratios = [a / b for a, b in zip(ours["losses"], rows["fp32"]["losses"], strict=True)]
    assert ours["loss_over_fp32"] == pytest.approx(sum(ratios) / 2)
    assert ours["error"] == pytest.approx(1.0, rel=0.1)
    assert 0.1 < ours["bits"] < ours["bits_in_all"] < 8
    complains([*command, "--member", "fp32", "--steps", "4"], "with steps = 3, not 4; give another folder")

    monkeypatch.setattr(page, "load", {"training": document, "lm": {"rows": []}}.__getitem__)
    monkeypatch.setattr(common, "load", page.load)
    assert "dithered-1" in page.tables()
    assert list(page.figures()) == ["training-cnn-sgd-2.svg"]


def test_the_codecs_of_ddp_are_trained_for_long_and_judged(tmp_path_factory, published):
    options = DDPLossOptions()
    assert options.steps >= 500
    assert options.seeds >= 5
    trained = [MEMBERS[name].quantizer for name in options.members]
    assert [
        name for name in CODECS if name != "nothing" and make_codec(name, PAPERS_BUCKET).quantizer not in trained
    ] == []
    asked = ["--steps", "3", "--seeds", "2", "--batch-size", "2", "--width", "32", "--member", "fp32,nuqsgd-4/8192"]
    document = published(["ddp-loss", *asked, "--out", str(tmp_path_factory.mktemp("runs"))])
    assert [row["contender"] for row in document["rows"]] == ["fp32", "nuqsgd-4/8192"]
    assert [goal["name"] for goal in document["goals"]] == ["loss of nuqsgd-4/8192 ÷ fp32"]
    assert document["rows"][1]["n_seeds"] == len(document["rows"][1]["losses"]) == 2


WRONG = {
    "task": (["--task", "gan"], "unknown task 'gan'"),
    "member": (["--member", "zip"], "unknown member 'zip'"),
    "no second moments": (["--member", "dithered-0.1@metric"], "which cnn-sgd has none of; give --task"),
    "width": (["--width", "33"], "--width must be a multiple of 32; got 33"),
    "precision": (["--precision", "fp8"], "unknown precision 'fp8'"),
    "device": (["--device", "tpu"], "unknown device 'tpu'"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(["training", *arguments], said)
