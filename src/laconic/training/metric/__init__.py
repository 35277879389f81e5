"""The metric that gradients are quantised in, and how it is chosen."""

from laconic.training.metric.base import Metric, SquaredError
from laconic.training.metric.choice import metric_for, metric_kind, require_same_scales, unwrapped

__all__ = ["Metric", "SquaredError", "metric_for", "metric_kind", "require_same_scales", "unwrapped"]
