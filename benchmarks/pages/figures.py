"""Figures of the documentation that explain the methods, drawn from the library's own numbers."""

from itertools import pairwise
from math import erf, log2, sqrt

from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, box, curves, line, svg, text
from laconic import NUQSGD, QSGD, QSGDInf

NORMS = {"L2": "L2", "LINF": "L∞"}


def levels() -> str:
    """Quantization levels between 0 and the norm at 4 bits."""
    parts = []
    for i, (scheme, colour) in enumerate(((NUQSGD(bits=4), BLUE), (QSGD(bits=4), ORANGE), (QSGDInf(bits=4), GREEN))):
        y = 40 + 60 * i
        parts += [
            text(10, y - 14, f"{type(scheme).__name__}: |v| ÷ {NORMS[scheme.norm.name]} norm of its bucket"),
            line(40, y, 680, y),
        ]
        for level in scheme.grid.levels:
            parts.append(line(40 + 640 * level, y - 10, 40 + 640 * level, y + 10, colour, 3))
    parts += [text(40, 200, "0", "middle"), text(680, 200, "1", "middle")]
    return svg(720, 210, "Levels of the quantizers at 4 bits", *parts)


def scatter_reduce() -> str:
    """Four ranks: chunks to their owners, sums, averages back to all."""
    parts = [
        text(2, 20, "1. chunks to their owners"),
        text(350, 20, "2. decode, add, quantise again", "middle"),
        text(610, 20, "3. averages to all", "middle"),
    ]
    colours = (BLUE, ORANGE, GREEN, PURPLE)
    for rank in range(4):
        y = 50 + 50 * rank
        parts.append(text(2, y + 18, f"rank {rank}"))
        for chunk in range(4):
            parts.append(box(60 + 30 * chunk, y, 26, 26, colours[chunk]))
            parts.append(box(550 + 30 * chunk, y, 26, 26, colours[chunk], 0.8))
            if chunk != rank:
                parts.append(line(186, y + 13, 318, 63 + 50 * chunk, colours[chunk], 0.8))
                parts.append(line(382, 63 + 50 * chunk, 544, y + 13, colours[chunk], 0.8))
        parts.append(box(324, y - 2, 52, 30, colours[rank], 0.55))
        parts.append(text(350, y + 18, "Σ ÷ 4", "middle"))
    return svg(720, 260, "scatter_reduce among four ranks", *parts)


def blocks() -> str:
    """SGD's messages against CA-SGD's, and which part of the Gram matrix is sent."""
    parts = [text(10, 20, "SGD: a message an iteration"), text(10, 110, "CA-SGD, s = 8: one for eight")]
    for i in range(8):
        parts.append(box(20 + 52 * i, 34, 30, 26, BLUE))
        parts.append(box(50 + 52 * i, 34, 18, 26, ORANGE, 0.8))
        parts.append(box(104 + 30 * i, 124, 30, 26, BLUE))
    parts += [box(20, 124, 48, 26, GREEN), box(68, 124, 36, 26, ORANGE, 0.8)]
    parts += [text(20, 190, "■", extra=f'fill="{BLUE}"'), text(36, 190, "an iteration")]
    parts += [text(140, 190, "■", extra=f'fill="{ORANGE}"'), text(156, 190, "message")]
    parts += [text(240, 190, "■", extra=f'fill="{GREEN}"'), text(256, 190, "Gram matrix of the 8 b rows")]
    for row in range(8):
        for column in range(8):
            sent = column < row
            parts.append(box(500 + 22 * column, 14 + 22 * row, 20, 20, ORANGE if sent else GREY, 0.6 if sent else 0))
    parts.append(text(588, 212, "sent: what lies below the diagonal blocks", "middle", 'font-size="12"'))
    return svg(720, 224, "Messages of SGD and of CA-SGD", *parts)


def dither_variance() -> str:
    """Variance of a value by its position between two multiples of the step, with and without subtraction."""
    positions = [i / 100 for i in range(101)]
    return curves(
        "Variance of one value, in squared steps",
        "position between two multiples of the step",
        "E (decoded − v)² ÷ Δ²",
        [
            Curve("stochastic rounding", ORANGE, [(f, f * (1 - f)) for f in positions]),
            Curve("subtractive dither", BLUE, [(f, 1 / 12) for f in positions]),
        ],
    )


def dither_bits() -> str:
    """Bits for normal values by their error: the symbol alone, the symbol given the dither, and Shannon's bound."""
    errors = [2.0 ** (i / 4) for i in range(-24, 9)]
    alone, given = zip(*(symbol_bits(sqrt(1 / (12 * error))) for error in errors), strict=True)
    return curves(
        "What the dither tells about the symbol",
        "E‖decoded − v‖² ÷ ‖v‖²",
        "bits per normal value",
        [
            Curve("symbol alone", ORANGE, list(zip(errors, alone, strict=True))),
            Curve("given the dither", BLUE, list(zip(errors, given, strict=True))),
            Curve("Shannon's bound", GREY, [(error, max(-log2(error) / 2, 0.0)) for error in errors]),
        ],
        x_log=True,
    )


def symbol_bits(sigma: float, n: int = 64) -> tuple[float, float]:
    """Entropy of k = round(v + u) for v normal with deviation sigma, and its mean given u, uniform on ±1/2."""
    reach = int(8 * sigma) + 2
    laws = []
    for u in ((i + 0.5) / n - 0.5 for i in range(n)):
        below = [(1 + erf((k - 0.5 - u) / (sigma * sqrt(2)))) / 2 for k in range(-reach, reach + 2)]
        laws.append([high - low for low, high in pairwise(below)])
    mixed = [sum(column) / n for column in zip(*laws, strict=True)]
    return entropy(mixed), sum(map(entropy, laws)) / n


def entropy(law: list[float]) -> float:
    return -sum(p * log2(p) for p in law if p > 0)


def figures() -> dict[str, str]:
    """Figures by file name, as SVG."""
    drawings = (levels, scatter_reduce, blocks, dither_variance, dither_bits)
    return {f"{draw.__name__.replace('_', '-')}.svg": draw() for draw in drawings}
