"""Estimators by scikit-learn's contract."""

from laconic.glm.estimators.classifier import CASGDClassifier
from laconic.glm.estimators.cv import CASGDClassifierCV, CASGDRegressorCV
from laconic.glm.estimators.regressor import CASGDRegressor

__all__ = ["CASGDClassifier", "CASGDClassifierCV", "CASGDRegressor", "CASGDRegressorCV"]
