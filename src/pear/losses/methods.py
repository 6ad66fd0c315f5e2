"""``METHODS``: the table of training methods. Each row is a ``Method``: a loss class and its published settings."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from pear.errors import PluginError, ProblemError
from pear.losses.cave import CaVELoss
from pear.losses.cmap import CMAPLoss
from pear.losses.cosine import CosineLoss
from pear.losses.dbb import DBBLoss
from pear.losses.defaults import PUBLISHED, Strengths
from pear.losses.dpo import DPOLoss, DPOMultiplicativeLoss
from pear.losses.imle import AIMLELoss, IMLELoss
from pear.losses.lava import LAVALoss
from pear.losses.ltr_listwise import ListwiseLTRLoss
from pear.losses.ltr_pairwise import PairwiseLTRLoss
from pear.losses.ltr_pointwise import PointwiseLTRLoss
from pear.losses.mse import MSELoss
from pear.losses.nce import NCELoss
from pear.losses.nid import NIDLoss
from pear.losses.own_problem import OwnProblem
from pear.losses.pear_loss import PEARLoss
from pear.losses.pfyl import PFYLLoss
from pear.losses.pg import PGLoss
from pear.losses.rfwo import RFWOLoss
from pear.losses.rfyl import RFYLLoss
from pear.losses.sfge import SFGELoss
from pear.losses.spo_plus import SPOPlusLoss
from pear.losses.ssvm import SSVMLoss
from pear.plugins import find_plugin, plugin_names
from pear.problem import Model, Problem
from pear.problem.oracle import make_oracle

REQUIREMENTS: dict[str, str] = {
    "nothing": "the true values alone",
    "decisions": "best decisions for given costs: a problem that is solved, or a function (an Oracle)",
    "relaxation": "the constraints, without integers: a Problem, or the relaxation of an Oracle",
    "vertices": "the neighbours of a vertex; found for a Problem",
    "pool": "decisions to compare with; collected while training, from given decisions",
}
"""The words of ``Method.requires``, each with what it requires from the user."""


class MethodTask(Protocol):
    """The interface of a task that a method can train on. LAVA also needs a method ``adjacent`` (see ``OwnProblem``).

    The default metric of ``pear.fit`` uses the decisions of ``decide``. If these are optimal decisions of ``problem``,
    the task may have an attribute ``decides_problem`` that is True, and ``pear.fit`` then solves ``problem`` instead.
    """

    @property
    def name(self) -> str:
        """The task's name, which begins with the kind of task, for example "knapsack"."""
        ...

    @property
    def problem(self) -> Problem | Model:
        """The decision problem."""
        ...

    def decide(self, cost: Any) -> Tensor:
        """Return the exact decisions (B, n) under costs (B, n)."""
        ...

    def decide_relaxed(self, cost: Any) -> Tensor:
        """Return the decisions (B, n) of the continuous relaxation under costs (B, n)."""
        ...


@dataclass(frozen=True)
class Method:
    """One training method, a row of ``METHODS``.

    Attributes:
        name: the name that users write.
        title: the name that tables print.
        loss: the class of the loss, or a function that maps the problem, and options, to a loss.
        needs: the arguments of ``loss`` that come from the task, as a map from the argument's name to the name of the
            task's attribute.
        options: the settings in the published experiments, by kind of task (the beginning of the task's name);
            settings under "" hold for every task. Settings that measure costs are in the unit of the training costs;
            the published experiments add ``published_unit``, which makes them absolute.
        shuffled: whether an epoch visits the samples in random order instead of their own order.
        note: a description in one line.
        requires: what the method needs from the user, in words of ``REQUIREMENTS``; () if the package that adds the
            method does not say.
    """

    name: str
    title: str
    loss: Callable[..., nn.Module]
    needs: dict[str, str] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    shuffled: bool = True
    note: str = ""
    requires: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ProblemError if ``requires`` has a word that ``REQUIREMENTS`` does not explain."""
        if any(word not in REQUIREMENTS for word in self.requires):  # a plain string fails by its letters
            there = ", ".join(map(repr, REQUIREMENTS))
            raise ProblemError(f"requires must be a tuple of words among {there}; got {self.requires!r}")

    def options_for(self, task: MethodTask) -> dict[str, Any]:
        """Return the published settings for this task."""
        return {k: v for kind, some in self.options.items() if task.name.startswith(kind) for k, v in some.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of smoothing, injection and guidance by name, without those that ``options`` replace.

        An experiment records them, because the defaults may change.

        Example:
            >>> from pear.losses import method
            >>> method("pear").defaults, sorted(method("pear-guided").defaults)[-2:]
            ({}, ['injection', 'smoothing'])
        """
        said = {name for some in self.options.values() for name in some}
        known = inspect.signature(self.loss).parameters.values()
        return {one.name: one.default for one in known if one.name in Strengths._fields and one.name not in said}

    @property
    def published_unit(self) -> dict[str, float]:
        """The option ``cost_unit=1.0`` as a dict; {} if the loss has no ``cost_unit``.

        With this option, settings are absolute, as in the published experiments.

        Example:
            >>> from pear.losses import method
            >>> method("pfyl").published_unit, method("mse").published_unit
            ({'cost_unit': 1.0}, {})
        """
        return {"cost_unit": 1.0} if "cost_unit" in inspect.signature(self.loss).parameters else {}

    def make(self, task: MethodTask, **options: Any) -> nn.Module:
        """Make the loss for a task, with the row's settings and ``options``, which replace settings of the same name.

        Raises:
            ProblemError: the method has no such option, or the task lacks something that the method needs.
        """
        settings = self.options_for(task) | options
        arguments = inspect.signature(self.loss).parameters
        known = [] if self.loss is MSELoss else [name for name in arguments if name not in ("problem", *self.needs)]
        takes_any = any(one.kind is one.VAR_KEYWORD for one in arguments.values())
        for name in settings:
            if name not in known and not takes_any:
                there = ", ".join(known) if known else "none"
                raise ProblemError(f"method '{self.name}' has no option {name!r}; its options: {there}")
        given = {}
        for argument, attribute in self.needs.items():
            if not hasattr(task, attribute):
                raise ProblemError(f"method '{self.name}' needs a task with {attribute}(), and {task.name} has none")
            given[argument] = getattr(task, attribute)
        solved = getattr(task, "decides_problem", not hasattr(task, "decide"))
        problem = task.problem if solved else make_oracle(task.problem, task.decide)
        loss: Any = self.loss(problem, **given, **settings)
        loss.given = problem  # the metric is exact even if training decides on the relaxation
        return loss


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
    """Return the method of this name, from ``METHODS``, from another package or from ``pear.register``.

    Raises:
        ProblemError: no method has this name; the message lists all names.
        PluginError: another package has a method of this name that cannot be used.

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
    """Return the names of PEAR's own methods, which a method of another package cannot have."""
    return tuple(row.name for row in METHODS)


def check_loss_plugin(name: str, value: Any) -> Method:
    """Check the method of another package, and return it as a ``Method``.

    Args:
        name: the name under which the package adds the method.
        value: the object that the package adds: a ``Method``, or a class or function that makes a loss.

    Raises:
        PluginError: ``value`` is none of these, or a ``Method`` of another name.
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
    """Return ``given`` as a ``Method``.

    ``given`` may be the name of a method, a ``Method``, a loss class, a function that makes a loss, or a loss. If it is
    a loss, ``Method.make`` copies it and accepts no options.

    Raises:
        ProblemError: ``given`` is none of these, or no method has this name.

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


def make_loss(name: Any, task: MethodTask | Problem | Model, **options: Any) -> nn.Module:
    """Make the loss of a method for a task, or for a problem of your own.

    Args:
        name: the name of a method, or any other argument of ``as_method``, such as a loss class.
        task: a ``Problem``, a ``Model``, or a ``MethodTask``.
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
