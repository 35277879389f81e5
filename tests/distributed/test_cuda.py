"""The same laws on a GPU: visible skips where there is none."""

import subprocess
import sys
from pathlib import Path

import nccl_checks
import pytest
import torch
from models import network, sgd, weights

import laconic
from laconic import NUQSGD, QSGD, Codec, ErrorFeedback, Policy, QSGDInf, Sign, Stream
from laconic.kernels import select

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SCHEMES = [NUQSGD(bits=4), NUQSGD(bits=3, p=0.7), QSGD(bits=2), QSGDInf(bits=8), Sign()]


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_symbols_are_those_of_the_cpu(scheme):
    v = torch.randn(20_001) ** 3
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    norms = select("cpu", cpu).norms(v, 512, scheme.norm)
    key = Stream(seed=3).key
    ours = select("cpu", cpu).quantize(v, norms, scheme.grid, 512, key)
    theirs = select("auto", cuda).quantize(v.to(cuda), norms.to(cuda), scheme.grid, 512, key)
    assert torch.equal(ours, theirs.cpu())
    a = select("cpu", cpu).dequantize(ours, norms, scheme.grid, 512)
    b = select("auto", cuda).dequantize(theirs, norms.to(cuda), scheme.grid, 512)
    assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("scheme", [*SCHEMES, ErrorFeedback(Sign())], ids=repr)
def test_a_payload_made_on_the_gpu_decodes_on_the_cpu(scheme):
    codec, v = Codec(scheme), torch.randn(10_000, device="cuda")
    payload = codec.encode(v, Stream(), codec.new_memory(v))
    there = codec.decode(payload)
    here = codec.decode(laconic.Payload.from_bytes(payload.to_bytes()))
    assert there.device.type == "cuda"
    assert torch.equal(there.cpu(), here)


def on_gpu(group, codec):
    from torch.nn.parallel import DistributedDataParallel

    rank = torch.distributed.get_rank(group)
    model = DistributedDataParallel(network().cuda(), process_group=group)
    laconic.compress(model, codec, policy=Policy(min_values=100, group_values=1000))
    optimizer = sgd(model)
    for step in range(5):
        x = torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * step + rank)).cuda()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), x[:, :5].argmax(dim=1)).backward()
        optimizer.step()
    return weights(model).cpu()


@pytest.mark.parametrize("codec", ["nuqsgd", "ef-sign", "bf16"])
@pytest.mark.parametrize("size", [1, 3])
def test_gpu_gradients_over_gloo(pool, codec, size):
    ranks = pool.run(on_gpu, size, codec=codec)
    assert torch.isfinite(ranks[0]).all()
    assert all(torch.equal(ranks[0], other) for other in ranks)


def fit_on_gpu(group, recipe):
    """This rank's columns of a model, its intercept and what ran."""
    import numpy as np

    from laconic.exchange import Communicator
    from laconic.glm import Bernoulli, DenseColumns, FitOptions, Problem, solve
    from laconic.glm import recipe as named

    comm = Communicator.over(group)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(2003, 60, generator=generator) / 8
    y = (X.sum(1) > 0).float()
    own = torch.from_numpy(np.array_split(np.arange(60), comm.size)[comm.rank])
    dtype = named(recipe).format("data").storage
    problem = Problem(DenseColumns(X[:, own].to("cuda", dtype)), Bernoulli(), y.cuda())
    steps = {"learning_rate": "constant", "eta0": 0.3, "batch_size": 16, "max_iter": 2, "tol": None}
    found = solve(problem, FitOptions(solver="ca_sgd", s=8, alpha=1e-3, recipe=recipe, **steps), comm=comm)
    return found.state.coef.cpu(), found.state.intercept.cpu(), found.ran, found.messages


@pytest.mark.parametrize(("recipe", "tolerance"), [("fp32", 1e-5), ("C", 5e-3), ("fp64", 1e-12)])
def test_models_over_gloo(pool, recipe, tolerance):
    """As many ranks as there are give the model of one, and all see the same sums."""
    (alone,) = pool.run(fit_on_gpu, 1, recipe=recipe)
    ranks = pool.run(fit_on_gpu, 3, recipe=recipe)
    whole = torch.cat([coef for coef, *_ in ranks], 1).double()
    assert float((whole - alone[0]).norm() / alone[0].double().norm()) < tolerance
    assert all(torch.equal(ranks[0][1], other[1]) for other in ranks)
    assert ("fused" in alone[2]) == (recipe != "fp64")
    assert ranks[0][3] == 2 * -(-2003 // (16 * 8)) + 2  # a message a block, and one an epoch for the penalty


@pytest.fixture(scope="module")
def nccl_outcomes(tmp_path_factory):
    """One process for all checks: NCCL and compiled kernels take a while to begin with."""
    script, store = Path(__file__).with_name("nccl_checks.py"), tmp_path_factory.mktemp("nccl") / "store"
    run = subprocess.run([sys.executable, str(script), str(store)], stdout=subprocess.PIPE, text=True)
    return dict(line.split("\t", 1) for line in run.stdout.splitlines() if "\t" in line)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", nccl_checks.checks())
def test_over_nccl(name, nccl_outcomes):
    assert nccl_outcomes.get(name, "its process ended before it") == "ok"
