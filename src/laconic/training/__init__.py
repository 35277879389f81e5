"""Training with compressed gradients."""

from laconic.errors import Disagreement
from laconic.training.compressor import Compressor
from laconic.training.ddp import compress, hook, set_codec
from laconic.training.decentralised import DCDPSGD, DPSGD, ECDPSGD, Clock, Decentralised, SimulatedGraph
from laconic.training.fsdp_weights import Differences
from laconic.training.groups import Policy
from laconic.training.simulated import SimulatedWorkers
from laconic.training.state import load_state_dict, state_dict
from laconic.training.statistics import log_stats, stats

__all__ = [
    "DCDPSGD",
    "DPSGD",
    "ECDPSGD",
    "Clock",
    "Compressor",
    "Decentralised",
    "Differences",
    "Disagreement",
    "Policy",
    "SimulatedGraph",
    "SimulatedWorkers",
    "compress",
    "hook",
    "load_state_dict",
    "log_stats",
    "set_codec",
    "state_dict",
    "stats",
]
