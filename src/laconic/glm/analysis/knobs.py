"""The nine knobs' disturbances by name; docs/precision.md derives them in this order."""

from laconic.glm.analysis.disturbance import Disturbance
from laconic.glm.analysis.gram import GramAccumulate, GramWire
from laconic.glm.analysis.rows import Data, GramEntries, GramOperand
from laconic.glm.analysis.vectors import Margin, Recurrence, Residual, Update, Weights

DISTURBANCES: dict[str, tuple[type[Disturbance], ...]] = {
    "data": (Data,),
    "margin": (Margin,),
    "gram_operand": (GramOperand, GramEntries),
    "gram_accumulate": (GramAccumulate,),
    "gram_wire": (GramWire,),
    "recurrence": (Recurrence,),
    "residual": (Residual,),
    "update": (Update,),
    "weights": (Weights,),
}
"""By knob, in the order of `laconic.glm.KNOBS`; where there are two, both bounds hold."""
