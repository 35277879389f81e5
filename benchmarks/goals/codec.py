"""What the suite `codec` is for: the numbers we promised ourselves, beside those of this run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.goals.outcome import Outcome, outcome
from laconic.bench.codec import Row
from laconic.bench.protocol import Spread

SETTING = "2 CPU cores, 2**26 float32 values, buckets of 8192, an idle machine; ÷ copy is speed over a torch copy_"


@dataclass(frozen=True, slots=True)
class Goal:
    """A number of one row, what it must reach (`floor`) and what we would like (`aim`)."""

    name: str
    contender: str
    operation: str
    value: Callable[[Row], Spread | None]
    floor: float
    aim: float


def _ratio(row: Row) -> Spread | None:
    return row.ratio_to_copy


def _millions(row: Row) -> Spread | None:
    rate = row.n / 1e6
    return Spread(rate / row.seconds.median, rate / row.seconds.p80, rate / row.seconds.p20)


def _over_entropy(row: Row) -> Spread | None:
    x = row.bits_over_entropy
    return None if x is None else Spread.exactly(x)


PACK, UNPACK = "quantize + pack", "unpack + dequantize + add"
RANS, ELIAS = "rans on nuqsgd-4", "elias on nuqsgd-4"

GOALS = (
    Goal("nuqsgd-4 quantize + pack ÷ copy", "nuqsgd-4", PACK, _ratio, 0.5, 1.0),
    Goal("nuqsgd-4 unpack + dequantize + add ÷ copy", "nuqsgd-4", UNPACK, _ratio, 0.5, 1.0),
    Goal("qsgdinf-4 quantize + pack ÷ copy", "qsgdinf-4", PACK, _ratio, 0.5, 1.0),
    Goal("qsgdinf-8 quantize + pack ÷ copy", "qsgdinf-8", PACK, _ratio, 0.5, 1.0),
    Goal("rans encode, M symbols/s a core", RANS, "encode", _millions, 100.0, 300.0),
    Goal("rans decode, M symbols/s a core", RANS, "decode", _millions, 100.0, 300.0),
    Goal("rans bits a coordinate ÷ entropy", RANS, "encode", _over_entropy, 1.02, 1.005),
    Goal("elias encode, M symbols/s a core", ELIAS, "encode", _millions, 50.0, 150.0),
    Goal("elias decode, M symbols/s a core", ELIAS, "decode", _millions, 50.0, 150.0),
)


def outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """The goals that these rows speak to."""
    by_key = {(row.contender, row.operation): row for row in rows}
    found = []
    for goal in GOALS:
        row = by_key.get((goal.contender, goal.operation))
        value = goal.value(row) if row else None
        if value is not None:
            found.append(outcome(goal.name, value, goal.floor, goal.aim))
    return found
