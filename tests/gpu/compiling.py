"""Kernels compiled for a Hopper GPU, without one; see `running` for how the table is run.

Triton's interpreter takes more than its compiler does. With a driver that knows its target and launches nothing, the
compiler says what it takes.
"""

import sys

import torch
from running import main

from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.quantizers import NUQSGD, QSGD, QSGDInf, Rotated, Sign

N = 20_000


def packs(_, quantizer):
    """Round and pack; unpack and add up two payloads."""
    from laconic.kernels import gpu  # Triton decides at its import whether to interpret

    n_bytes = packed_bytes(N, quantizer.bits, quantizer.bucket_size)
    v, norms = torch.zeros(N), torch.zeros(2, n_buckets(N, quantizer.bucket_size))
    data, keys = torch.zeros(2, -(-n_bytes // 4) * 4, dtype=torch.uint8), torch.zeros(2, 2, dtype=torch.int32)
    quantizer.pack(gpu, v, 3, norms[0], data[0])
    quantizer.unpack(gpu, data, norms, keys if quantizer.draws_again else None, v, 0.5, False)


def blocks(_, n, batch_size, s):
    """Every stage of a block of CA-SGD, each launched before the one before it ends."""
    from benchmarks.glm import stages
    from laconic.kernels.gpu.glm import recurrence, update

    stages.BLOCKS = 1
    for kernel in (recurrence, update):
        sys.modules[kernel.__module__].has_dependent_launch = lambda device: True
    block = stages._Block(n, batch_size, s, torch.device("cpu"))
    for stage in (block.gather, block.gram, block.recurrence, block.update):
        stage()


def compiled():
    large = {"bucket_size": 8192}
    members = [NUQSGD(bits=3, **large), NUQSGD(bits=4, p=0.7, **large), QSGD(bits=7, **large), QSGDInf(8), Sign()]
    return {
        **{repr(q): (packs, q) for q in (*members, Rotated())},
        "a block of 512 rows": (blocks, 2000, 32, 16),
        "a block of long rows": (blocks, 32_768, 32, 8),
    }


def launch_nothing():
    """Compile for Hopper whatever is to be launched, and leave it at that."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver, jit

    class Hopper:
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)

    run = jit.JITFunction.run
    driver.set_active(Hopper())
    jit.JITFunction.run = lambda self, *given, warmup, **more: run(self, *given, warmup=True, **more)


if __name__ == "__main__":
    launch_nothing()
    main({"cuda": compiled})
