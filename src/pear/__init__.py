"""PEAR: train forecasters on the regret of the decisions they lead to.

A forecaster predicts the costs of an optimisation problem; the decision is paid for at the true cost. ``PEARLoss`` is
what the decision loses, and its gradient is the prediction error projected onto the tangent space of the active
constraints: one small linear solve per sample, exact, for any LP or convex QP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pear import losses, tasks
from pear.decisions import solve
from pear.decisions.solution import Solution
from pear.errors import (
    DataError,
    FailedSamplesWarning,
    MissingExtraError,
    NotUniqueError,
    PearError,
    ProblemError,
    SolveError,
    UnknownSolverError,
)
from pear.losses import DecisionLayer, PEARLoss, normalized_regret, regret, regret_gradient
from pear.optimality.point import Status
from pear.problem import ConstraintMap, CostMap, Model, Penalty, Problem, Projection, Smooth

if TYPE_CHECKING:
    from pear import boosting
    from pear.diagnosis.advice import advise
    from pear.diagnosis.diagnose import diagnose
    from pear.problem.importers import (
        from_cvxpy,
        from_gurobipy,
        from_highs,
        from_mps,
        from_pyepo,
        from_pyomo,
        from_scipy,
    )
    from pear.train import FitConfig, fit, tune
    from pear.train.estimator.regressor import DecisionRegressor
    from pear.train.estimator.scorer import regret_scorer
    from pear.train.samples import ParquetSamples

__version__ = "0.1.0"

__all__ = [
    "ConstraintMap",
    "CostMap",
    "DataError",
    "DecisionLayer",
    "DecisionRegressor",
    "FailedSamplesWarning",
    "FitConfig",
    "MissingExtraError",
    "Model",
    "NotUniqueError",
    "PEARLoss",
    "ParquetSamples",
    "PearError",
    "Penalty",
    "Problem",
    "ProblemError",
    "Projection",
    "Smooth",
    "Solution",
    "SolveError",
    "Status",
    "UnknownSolverError",
    "advise",
    "boosting",
    "diagnose",
    "fit",
    "from_cvxpy",
    "from_gurobipy",
    "from_highs",
    "from_mps",
    "from_pyepo",
    "from_pyomo",
    "from_scipy",
    "losses",
    "normalized_regret",
    "regret",
    "regret_gradient",
    "regret_scorer",
    "solve",
    "tasks",
    "tune",
]


_IMPORTERS = ("from_cvxpy", "from_gurobipy", "from_highs", "from_mps", "from_pyepo", "from_pyomo", "from_scipy")
_LATER = {
    **dict.fromkeys(_IMPORTERS, "pear.problem.importers"),
    **dict.fromkeys(("FitConfig", "fit", "tune"), "pear.train"),
    "diagnose": "pear.diagnosis.diagnose",
    "DecisionRegressor": "pear.train.estimator.regressor",
    "ParquetSamples": "pear.train.samples",
    "advise": "pear.diagnosis.advice",
    "regret_scorer": "pear.train.estimator.scorer",
}


def __getattr__(name: str) -> Any:
    """Training and importers are imported when first asked for: who only decides need not wait for them."""
    if name == "boosting":
        return import_module("pear.boosting")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'pear' has no attribute {name!r}")
