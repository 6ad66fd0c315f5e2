"""Gradient boosting on regret: a custom objective and a metric for LightGBM and XGBoost."""

from pear.boosting.objective import Metric, Objective, metric, objective, out_of_fold

__all__ = ["Metric", "Objective", "metric", "objective", "out_of_fold"]
