"""Estimators by scikit-learn's contract."""

from laconic.glm.estimators.classifier import CASGDClassifier
from laconic.glm.estimators.regressor import CASGDRegressor

__all__ = ["CASGDClassifier", "CASGDRegressor"]
