"""Gradient boosting on regret: objective and metric for LightGBM and XGBoost, and a regressor made of them."""

from pear.boosting.objective import Metric, Objective, metric, objective

__all__ = ["Metric", "Objective", "metric", "objective"]
