"""Values to bytes and back, for one scheme at fixed width: through `Codec` as users do, and the bare kernels."""

from collections.abc import Callable

import torch

from laconic.bench.checks import check_error, relative_error
from laconic.bench.codec.row import Row, Step
from laconic.bench.protocol import compare
from laconic.bench.schemes import Scheme
from laconic.codec import Codec
from laconic.coders import FixedWidth, Shape
from laconic.kernels import Stream, select
from laconic.quantizers import Bucketed

STREAM = Stream(seed=1)


def transport_step(scheme: Scheme, problem: str, v: torch.Tensor, scratch: torch.Tensor, repeats: int) -> Step:
    """The rows of one scheme on values v (n,); `scratch` (n,) is overwritten."""

    def run() -> list[Row]:
        bits, error = checked(scheme, v, scratch)
        rows = []
        for (via, operation), call in {**through_codec(scheme, v, scratch), **bare(scheme, v, scratch)}.items():
            rows.append(
                Row.timed(
                    compare(call, lambda: scratch.copy_(v), repeats=repeats),
                    n=v.numel(),
                    value_bytes=4,
                    problem=problem,
                    contender=scheme.label,
                    config=repr(scheme.quantizer),
                    via=via,
                    operation=operation,
                    n_threads=torch.get_num_threads(),
                    bits_per_coordinate=bits,
                    error=error,
                )
            )
        return rows

    return Step(scheme.label, run)


Calls = dict[tuple[str, str], Callable[[], object]]
"""(via, operation) to what is timed."""


def through_codec(scheme: Scheme, v: torch.Tensor, out: torch.Tensor) -> Calls:
    """`Codec.encode`, which allocates its payload each time, and `Codec.decode_add`."""
    codec = Codec(scheme.quantizer)
    memory = codec.new_memory(v)
    payload = codec.encode(v, STREAM, memory)
    return {
        ("codec", "encode"): lambda: codec.encode(v, STREAM, memory),
        ("codec", "decode + add"): lambda: codec.decode_add(payload, out),
    }


def bare(scheme: Scheme, v: torch.Tensor, out: torch.Tensor) -> Calls:
    """The two fused kernels, into memory that is already there; none for a scheme that has no kernels or wraps one."""
    q = scheme.quantizer
    if not isinstance(q, Bucketed):
        return {}
    kernels = select("auto", v.device)
    norms = torch.zeros(q.n_norms(v.numel()))
    data = torch.zeros(FixedWidth().max_bytes(Shape(v.numel(), q.bits, q.bucket_size)), dtype=torch.uint8)

    def quantize_pack() -> None:
        kernels.quantize_pack(v, q.norm, q.grid, q.bucket_size, STREAM.key, norms, data)

    def unpack_dequantize_add() -> None:
        kernels.unpack_dequantize(data[None], norms[None], q.grid, q.bucket_size, out, 1.0, True)

    return {
        ("kernel", "quantize + pack"): quantize_pack,
        ("kernel", "unpack + dequantize + add"): unpack_dequantize_add,
    }


def checked(scheme: Scheme, v: torch.Tensor, out: torch.Tensor) -> tuple[float, float]:
    """Bits a coordinate and relative error of one round trip, after a check that the error is what it must be."""
    codec = Codec(scheme.quantizer)
    payload = codec.encode(v, STREAM, codec.new_memory(v))
    codec.decode_add(payload, out.zero_())
    check_error(scheme.label, scheme.quantizer, v, out)
    return payload.bits_per_coordinate, relative_error(out, v)
