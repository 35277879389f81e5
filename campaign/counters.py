"""Counters near overflow: streams, steps of training, iterations of a fit; and over 2³¹ values in one payload."""

import json
import random
import shutil
import tempfile
from functools import partial
from pathlib import Path

import torch

import laconic
from campaign.case import Broken, Case, Trial
from laconic import Codec, Stream
from laconic.errors import InvalidOption
from laconic.glm.fit import fit_file
from laconic.kernels.dither import CELL
from laconic.training import SimulatedWorkers
from tests.glm.fits import Stop, changed, small_job, write_problem
from tests.laws.members import ENDS, inputs

ENDS_OF_COUNTERS = (2**31, 2**32, 2**53, 2**63)
MANY = 2**31 + 5


def streams() -> Trial:
    """Reference and kernels give the same symbols at any step, and different steps have different random numbers."""

    def trial(rng: random.Random) -> str:
        end, codec = rng.choice(ENDS_OF_COUNTERS), Codec(rng.choice(ENDS))
        step, v = min(end + rng.randrange(-3, 3), 2**63 - 1), inputs(300)["normal"]
        stream = Stream(rng.choice((0, 2**31, 2**63 - 1)), rng.choice((0, 2**15)), step, rng.choice((0, 2**31 - 1)))
        made = [Codec(codec.quantizer, backend=backend).encode(v, stream) for backend in ("cpu", "reference")]
        if made[0] != made[1]:
            raise Broken(f"{codec} at {stream}: backends differ")
        codec.decode(made[0])
        before = Stream(stream.seed, stream.rank, step - 1, stream.tensor)
        if codec.quantizer.core.unbiased and codec.encode(v, before) == made[0] and "Identity" not in str(codec):
            raise Broken(f"{codec} at {stream}: the numbers of the step before")
        return "agrees"

    return trial


def steps() -> Trial:
    """Training continues across 2³¹, 2³² and 2⁵³ steps; at 2⁶³ it is refused with a named error, or continues."""

    def trial(rng: random.Random) -> str:
        end = rng.choice(ENDS_OF_COUNTERS)
        net = torch.nn.Linear(64, 64)
        workers = SimulatedWorkers(net, "nuqsgd", n_workers=2)
        workers.step = end - 2
        batches = torch.randn(2, 8, 64)
        try:
            for _ in range(4):
                workers.backward([partial(_loss, net, x) for x in batches])
        except InvalidOption as error:
            if end < 2**63:
                raise Broken("refused too early") from error
            return "refused"
        if net.weight.grad is None or not bool(net.weight.grad.isfinite().all()):
            raise Broken("a gradient that is not finite")
        return "went on"

    return trial


def _loss(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = net(x).square().mean()
    return loss


def iterations() -> Trial:
    """A fit continues across large numbers of iterations and epochs, from a checkpoint with such numbers."""
    folder = Path(tempfile.mkdtemp())
    job = small_job(write_problem(folder / "rows.safetensors"), folder / "model.safetensors")
    job = changed(job, checkpoint=str(folder / "kept"), checkpoint_every=0.0, eta0=0.1)
    fit_file(job, callbacks=[Stop(5)])

    def trial(rng: random.Random) -> str:
        end = rng.choice(ENDS_OF_COUNTERS[:3])
        copy = Path(tempfile.mkdtemp()) / "kept"
        shutil.copytree(folder / "kept", copy)
        told = json.loads((copy / "checkpoint.json").read_text())
        told["numbers"] |= {"iteration": end - 3, "bytes_sent": end - 1, "messages": end - 1}
        (copy / "checkpoint.json").write_text(json.dumps(told))
        found = fit_file(changed(job, resume=True, checkpoint=str(copy)))
        if not found["iterations"] > end or not found["loss"] < 1:
            raise Broken(f"{found['iterations']} iterations, loss {found['loss']}")
        return "went on"

    return trial


def values(codec: Codec) -> Trial:
    """More values than an int32 counts, nearly all zero: the others must be decoded at their places.

    Elsewhere only `Dithered` may decode non-zero values, smaller ones, in the cells of 512 values around these places.
    """
    cell = CELL if isinstance(codec.quantizer, laconic.Dithered) else 1

    def trial(rng: random.Random) -> str:
        places = [
            0,
            1,
            2**30,
            2**31 - 2,
            2**31 - 1,
            2**31,
            2**31 + 1,
            MANY - 1,
            *(rng.randrange(MANY) for _ in range(9)),
        ]
        v = torch.zeros(MANY)
        v[places] = 1.0
        payload = codec.encode(v)
        decoded = codec.decode(payload, out=v)
        found = decoded[places]
        decoded[places] = 0.0
        good = bool((found > 0.5).all())
        for place in places:
            near = decoded[place // cell * cell :][:cell]
            good = good and bool((near.abs() < 0.5).all())
            near.zero_()
        if not good or bool(decoded.any()):
            raise Broken(f"{codec}: {found.tolist()}, and {int(decoded.count_nonzero())} others")
        return "came back"

    return trial


def needs_memory() -> None:
    """Raise `Broken` unless 14 GiB of memory are free."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    if int(free.split()[1]) < 14 * 2**20:
        raise Broken("needs 14 GiB of memory")


LARGE = {
    "nuqsgd": Codec(laconic.NUQSGD(bits=4)),
    "nuqsgd rans": Codec(laconic.NUQSGD(bits=4), laconic.RANS()),
    "bf16": laconic.codec("bf16"),
    "dithered": Codec(laconic.Dithered(error=0.1)),
}
CASES = [
    Case("counters, streams", 200, 20_000, streams, 5_000),
    Case("counters, steps", 20, 400, steps, 400),
    Case("counters, iterations", 5, 40, iterations, 40),
    *(
        Case(f"counters, 2^31 + 5 values, {name}", 1, 1, partial(values, codec), 1, 900.0, needs=needs_memory)
        for name, codec in LARGE.items()
    ),
]
