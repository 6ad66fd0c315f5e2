"""Gradient boosting on regret: a custom objective and a metric for LightGBM and XGBoost."""

from pear.boosting.objective import Metric, Objective, metric, objective

__all__ = ["Metric", "Objective", "metric", "objective"]
