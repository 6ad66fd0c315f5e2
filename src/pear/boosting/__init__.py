"""Gradient boosting on regret: a custom objective and a metric for LightGBM and XGBoost."""

from pear.boosting.metric import Metric, metric
from pear.boosting.objective import Objective, objective
from pear.boosting.out_of_fold import out_of_fold

__all__ = ["Metric", "Objective", "metric", "objective", "out_of_fold"]
