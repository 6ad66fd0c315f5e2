"""``METHODS``: the table of training methods, with a loss class and its published settings in each row."""

from __future__ import annotations

import copy
import difflib
from typing import Any

from torch import nn

from pear.errors import PluginError, ProblemError
from pear.losses.cave import CaVELoss
from pear.losses.cmap import CMAPLoss
from pear.losses.cosine import CosineLoss
from pear.losses.dbb import DBBLoss
from pear.losses.defaults import PUBLISHED
from pear.losses.dpo import DPOLoss, DPOMultiplicativeLoss
from pear.losses.imle import AIMLELoss, IMLELoss
from pear.losses.lava import LAVALoss
from pear.losses.ltr_listwise import ListwiseLTRLoss
from pear.losses.ltr_pairwise import PairwiseLTRLoss
from pear.losses.ltr_pointwise import PointwiseLTRLoss
from pear.losses.method_row import Method, OwnProblem, TaskLike
from pear.losses.mse import MSELoss
from pear.losses.nce import NCELoss
from pear.losses.nid import NIDLoss
from pear.losses.pear_loss import PEARLoss
from pear.losses.perturbation_gradient import PGLoss
from pear.losses.pfyl import PFYLLoss
from pear.losses.rfwo import RFWOLoss
from pear.losses.rfyl import RFYLLoss
from pear.losses.sfge import SFGELoss
from pear.losses.spo_plus import SPOPlusLoss
from pear.losses.ssvm import SSVMLoss
from pear.plugins import find_plugin, plugin_names
from pear.problem import Model, Problem

_EXACT = {"decide": "decide"}
_RELAXED = {"decide": "decide_relaxed"}
_WEIGHT = {"": {"mse_weight": 0.01}}

_DECISIONS = ("decisions",)
_POOL = ("decisions", "pool")

METHODS: tuple[Method, ...] = (
    Method("mse", "MSE", MSELoss, note="error of the forecast; knows nothing of the decision", requires=("nothing",)),
    Method(
        "spo+", "SPO+", SPOPlusLoss, _EXACT, _WEIGHT,
        note="convex bound of the regret, exact decisions", requires=_DECISIONS,
    ),
    Method(
        "spo+relaxed", "SPO+ (relaxed)", SPOPlusLoss, _RELAXED, _WEIGHT,
        note="the same on the relaxation", requires=("relaxation",),
    ),
    Method(
        "pfyl", "PFYL", PFYLLoss, _EXACT, {"": {"mse_weight": 0.01, "samples": 1, "sigma": 1.0, "seed": 135}},
        note="perturbed Fenchel-Young loss", requires=_DECISIONS,
    ),
    Method(
        "dbb", "DBB", DBBLoss, _EXACT,
        {**_WEIGHT, "shortest_path": {"interpolation": 20.0}, "knapsack": {"interpolation": 10.0}},
        note="regret, interpolated through the solver", requires=_DECISIONS,
    ),
    Method(
        "nid", "NID", NIDLoss, _EXACT, _WEIGHT,
        note="regret, as if decisions fell where costs rise", requires=_DECISIONS,
    ),
    Method(
        "pg", "PG", PGLoss, _EXACT, _WEIGHT,
        note="cost of the decision as a difference of optimal values", requires=_DECISIONS,
    ),
    Method(
        "dpo", "DPO", DPOLoss, _EXACT, _WEIGHT,
        note="regret of the mean decision under perturbed costs", requires=_DECISIONS,
    ),
    Method(
        "dpo-multiplicative", "DPO (multiplicative)", DPOMultiplicativeLoss, _EXACT, _WEIGHT,
        note="the same with noise that keeps the signs of costs", requires=_DECISIONS,
    ),
    Method(
        "imle", "I-MLE", IMLELoss, _EXACT, _WEIGHT,
        note="regret of a perturbed decision, interpolated through the solver", requires=_DECISIONS,
    ),
    Method(
        "aimle", "AI-MLE", AIMLELoss, _EXACT, _WEIGHT,
        note="the same with a step that adapts", requires=_DECISIONS,
    ),
    Method(
        "sfge", "SFGE", SFGELoss, _EXACT,
        note="regret or any loss of random forecasts around the predicted one", requires=_DECISIONS,
    ),
    Method(
        "lava", "LAVA", LAVALoss, {**_RELAXED, "adjacent": "adjacent"}, {"": {"threshold": -0.1}}, shuffled=False,
        note="best vertex against its neighbours; no solve after the first epoch", requires=("relaxation", "vertices"),
    ),
    Method("nce", "NCE", NCELoss, _EXACT, _WEIGHT, note="best decision against a pool's mean", requires=_POOL),
    Method(
        "cmap", "CMAP", CMAPLoss, _EXACT, _WEIGHT,
        note="best decision against the one of a pool that looks cheapest", requires=_POOL,
    ),
    Method(
        "ltr-pointwise", "LTR, pointwise", PointwiseLTRLoss, _EXACT,
        note="error of what the solutions of a pool cost", requires=_POOL,
    ),
    Method(
        "ltr-pairwise", "LTR, pairwise", PairwiseLTRLoss, _EXACT, _WEIGHT,
        note="best solution of a pool before each of the others", requires=_POOL,
    ),
    Method(
        "ltr-listwise", "LTR, listwise", ListwiseLTRLoss, _EXACT,
        note="likelihoods of the solutions of a pool", requires=_POOL,
    ),
    Method(
        "rfwo", "RFWO", RFWOLoss, _EXACT, {"": {"mse_weight": 0.01, "strength": 1.0}},
        note="regret of decisions with a square added, by Frank-Wolfe", requires=_DECISIONS,
    ),
    Method(
        "rfyl", "RFYL", RFYLLoss, _EXACT, {"": {"mse_weight": 0.01, "strength": 1.0}},
        note="Fenchel-Young loss of the same decisions", requires=_DECISIONS,
    ),
    Method(
        "ssvm", "SSVM", SSVMLoss, _EXACT, {"": {"mse_weight": 0.01, "margin": 1.0}},
        note="best decision cheaper than others by a margin", requires=_DECISIONS,
    ),
    Method(
        "cave", "CaVE", CaVELoss, _EXACT, _WEIGHT,
        note="angle to the costs with the same best decision", requires=("decisions", "relaxation"),
    ),
    Method("cosine", "Cosine", CosineLoss, _EXACT, _WEIGHT, note="angle to the true costs", requires=("nothing",)),
    Method(
        "pear", "PEAR", PEARLoss, options={"": PUBLISHED._asdict()},
        note="regret of the relaxation, with its exact gradient: PEAR as published", requires=("relaxation",),
    ),
    Method(
        "pear-guided", "PEAR, our defaults", PEARLoss,
        note="the same with this package's defaults instead of the paper's", requires=("relaxation",),
    ),
)  # fmt: skip


def method(name: str) -> Method:
    """Return the row of ``METHODS`` with this name, or that of another package or of ``pear.register``.

    Raises:
        ProblemError: there is no such row; the message lists all names.
        PluginError: another package has one that cannot be used.

    Example:
        >>> from pear.losses.methods import method
        >>> method("spo+").title
        'SPO+'
    """
    rows = {row.name: row for row in METHODS}
    if name in rows:
        return rows[name]
    if (plugin := find_plugin("loss", name)) is not None:
        added: Method = plugin
        return added
    names = [*rows, *plugin_names("loss")]
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise ProblemError(f"unknown method {name!r}; there are {', '.join(names)}.{hint}")


def own_loss_names() -> tuple[str, ...]:
    """The names that a method of another package cannot have."""
    return tuple(row.name for row in METHODS)


def check_loss_plugin(name: str, value: Any) -> Method:
    """Check the method of another package, and return its row.

    Raises:
        PluginError: it is neither a ``Method`` of that name nor a class or function that makes a loss.
    """
    if isinstance(value, Method):
        if value.name != name:
            raise PluginError(f"its row is called {value.name!r}; the name must be the same in both places")
        return value
    if not callable(value) or isinstance(value, nn.Module):
        raise PluginError(
            f"expected a class of losses, a function from the problem to a loss, or a pear.losses.Method; got {value!r}"
        )
    return Method(name, name, value)


def as_method(given: Any) -> Method:
    """Return the method that a user means by a name, a row, a class of losses, a function that makes one, or a loss.

    A loss is copied by every ``make``, and takes no options.

    Raises:
        ProblemError: it is none of these, or there is no method of that name.

    Example:
        >>> as_method("spo+").title, as_method(SPOPlusLoss).title
        ('SPO+', 'SPOPlusLoss')
    """
    if isinstance(given, str):
        return method(given)
    if isinstance(given, Method):
        return given
    if isinstance(given, nn.Module):
        title = " ".join(repr(given).split())
        return Method(title, title, lambda problem: copy.deepcopy(given))
    if callable(given):
        title = getattr(given, "__name__", type(given).__name__)
        return Method(title, title, given)
    raise ProblemError(
        f"a method must be a name, a class of losses, a function from the problem to a loss, or a loss; got {given!r}"
    )


def make_loss(name: Any, task: TaskLike | Problem | Model, **options: Any) -> nn.Module:
    """Make the loss of a method for a task, or for a problem of your own.

    Args:
        name: the name of a method of ``METHODS`` or of a plug-in; or what ``as_method`` takes, such as a class.
        task: a ``Problem`` or a ``Model``; or an object with a name, a problem, ``decide``, ``decide_relaxed`` and,
            for LAVA, ``adjacent``.
        options: keyword arguments of the loss; they replace the settings of the method.

    Returns:
        A loss, called as ``loss(predicted, true, keys=None)``. Its attribute ``seconds`` counts the time of "solve" and
        "gradient".

    Example:
        >>> import pear
        >>> from pear.losses import make_loss
        >>> make_loss("spo+", pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0))
        SPOPlusLoss(Problem(min, n=2, 1 equality, bounds), mse_weight=0.01, cost_unit='auto')
    """
    return as_method(name).make(OwnProblem(task) if isinstance(task, (Problem, Model)) else task, **options)
