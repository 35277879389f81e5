"""Rates to plan with where nothing was measured: of the order of a server's core and Gloo over 10-Gbit
Ethernet.

Every automatic choice that must be the same on all ranks and in every run is made from these. `laconic plan` measures
better ones.
"""

from laconic.planner.cluster import Cluster, CodecRates, Link, SolverRates

_LINK = Link(alpha_seconds=100e-6, seconds_per_byte=0.8e-9)
_SGD = SolverRates(300e-6, 0.0, 0.4e-6, 0.3e-9, 0.25e-9, 0.0, 0.0)
_CA_SGD = SolverRates(450e-6, 1e-6, 0.4e-6, 0.3e-9, 0.25e-9, 0.015e-9, 0.5e-9)

DEFAULT = Cluster(
    n_ranks=4,
    all_reduce=_LINK,
    narrow=_LINK,
    all_to_all=_LINK,
    solvers={f"sgd {name}": _SGD for name in ("fp32", "C")}
    | {f"ca_sgd {name}": _CA_SGD for name in ("fp32", "C", "D")},
    codecs={
        "fp32": CodecRates(32.0, 20e-6, 0.4e-9, 0.0, 0.0, 0.0),
        "bf16": CodecRates(16.0, 20e-6, 0.6e-9, 0.0, 0.4e-9, 0.0),
        "nuqsgd-8": CodecRates(8.004, 60e-6, 1.4e-9, 0.0, 0.8e-9, 0.0),
        "nuqsgd-4": CodecRates(4.004, 60e-6, 1.2e-9, 0.0, 0.7e-9, 0.0),
        "nuqsgd-4-rans": CodecRates(2.6, 200e-6, 1.2e-9, 6e-9, 0.7e-9, 6e-9),
    },
)
"""Four ranks of one core each; `DEFAULT.what_if(...)` for others."""
