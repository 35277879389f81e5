"""The tables the laws run over: every quantizer, every coder, every shape that has ever broken one."""

from dataclasses import replace

import torch

from laconic import Elias, ErrorFeedback, Identity, QSGDInf, Rotated, coders
from laconic.quantizers import SCHEMES, Bucketed

STATELESS = [example for scheme in SCHEMES for example in scheme.examples()]
IDENTITIES = [quantizer for quantizer in STATELESS if isinstance(quantizer, Identity)]
BUCKETED = [quantizer for quantizer in STATELESS if isinstance(quantizer, Bucketed)]
SUBTRACTING = [QSGDInf(bits=bits, subtract=True) for bits in (2, 3, 4, 8)]
FIXED_WIDTH = [quantizer for quantizer in [*STATELESS, *SUBTRACTING] if isinstance(quantizer, Bucketed | Rotated)]
UNBIASED = [quantizer for quantizer in BUCKETED if quantizer.unbiased]
ENDS = [inner for scheme in SCHEMES for inner in {scheme.examples()[0]: 0, scheme.examples()[-1]: 0}]
WITH_MEMORY = [ErrorFeedback(inner) for inner in ENDS]
QUANTIZERS = [*STATELESS, *WITH_MEMORY]

CODERS = [*(coder() for coder in coders.CODERS.values()), Elias("sparse"), Elias("dense")]

SIZES_AND_BUCKETS = [
    (0, 8),
    (1, 1),
    (1, 8192),
    (5, 1),
    (7, 7),
    (100, 64),
    (1001, 7),
    (8192, 8192),
    (8193, 8192),
    (20000, 4096),
]

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def inputs(n: int) -> dict[str, torch.Tensor]:
    """Values of length n, from ordinary to nasty but finite."""
    g = torch.Generator().manual_seed(n)
    normal = torch.randn(n, generator=g)
    spike = torch.zeros(n)
    spike[n // 2 : n // 2 + 1] = -3.0
    gaps = normal.clone()
    gaps[n // 4 : n - n // 8] = 0.0
    return {
        "normal": normal,
        "heavy tail": normal**5,
        "zeros": torch.zeros(n),
        "gaps": gaps,
        "spike": spike,
        "constant": torch.full((n,), 0.1),
        "subnormal": normal * 1e-41,
        "tiny": normal * 1e-30,
        "large": normal.clamp(-3, 3) * 1e36,
        "negative zero": -torch.zeros(n),
    }


def named(members: list) -> dict:
    """Keyword arguments of `pytest.mark.parametrize` that name each member by its repr."""
    return {"argvalues": members, "ids": [repr(m) for m in members]}


def with_bucket(quantizer, bucket_size: int):
    """The same quantizer with another bucket size; `Identity` has none."""
    if isinstance(quantizer, ErrorFeedback):
        return ErrorFeedback(with_bucket(quantizer.inner, bucket_size))
    return replace(quantizer, bucket_size=bucket_size) if isinstance(quantizer, Bucketed | Rotated) else quantizer


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality that counts NaN equal to NaN and -0 different from +0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.view(torch.int32), b.view(torch.int32)) if a.is_floating_point() else torch.equal(a, b)
