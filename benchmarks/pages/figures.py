"""Figures of the documentation that show how the methods work, drawn from the library's own numbers."""

from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, box, line, svg, text
from laconic import NUQSGD, QSGD, QSGDInf

NORMS = {"L2": "L2", "LINF": "L∞"}


def levels() -> str:
    """Where 4 bits put their levels between 0 and the norm."""
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


def figures() -> dict[str, str]:
    """Every figure's file, and the drawing."""
    return {f"{draw.__name__.replace('_', '-')}.svg": draw() for draw in (levels, scatter_reduce, blocks)}
