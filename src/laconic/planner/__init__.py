"""Predict the cost of each training option on a cluster, term by term, and recommend one."""

from laconic.planner.cluster import DEFAULT, Cluster, CodecRates, Impossible, Link, SolverRates
from laconic.planner.glm import GlmJob, GlmOption
from laconic.planner.network import NetworkJob, NetworkOption
from laconic.planner.plan import Plan, best_s, from_json, plan
from laconic.planner.terms import Cost, CostTerm

__all__ = [
    "DEFAULT",
    "Cluster",
    "CodecRates",
    "Cost",
    "CostTerm",
    "GlmJob",
    "GlmOption",
    "Impossible",
    "Link",
    "NetworkJob",
    "NetworkOption",
    "Plan",
    "SolverRates",
    "best_s",
    "from_json",
    "plan",
]
