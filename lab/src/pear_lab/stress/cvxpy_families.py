"""Random problems written in CVXPY, as users write them.

Every problem has a solution for all values in the ranges of its parameters. A problem depends only on its seed and its
number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pear.optional_packages import import_optional
from pear_lab.benchmarks.random_programs import random_program_entries
from pear_lab.judge.judged_program import Array

cp: Any = import_optional("cvxpy", "cvxpy", "pear stress cvxpy")
Rng = np.random.Generator
SAMPLES = 4
"""The number of samples of a problem. A sample is a forecast and a true value of each parameter."""


@dataclass(frozen=True)
class CvxpyFamilyCase:
    """A problem of CVXPY with B samples of its parameters.

    Attributes:
        family: the name of the family in ``CVXPY_FAMILIES``.
        problem: the problem.
        parameters: the parameters of the problem, which are all predicted.
        true: (B, k) the true values of the k entries of all parameters, one parameter after the other.
        predicted: (B, k) forecasts of these values.
        recourse: constraints that have a parameter, each with the price of a violation; None if there is none.
        scale: the unit of the objective.
    """

    family: str
    problem: Any
    parameters: list[Any]
    true: Array
    predicted: Array
    recourse: dict[Any, Any] | None = None
    scale: float = 1.0

    def set_parameters(self, values: Array) -> None:
        """Set the parameters to the values (k,) of one sample."""
        ends = np.cumsum([p.size for p in self.parameters])[:-1]
        for p, part in zip(self.parameters, np.split(values, ends), strict=True):
            p.value = part.reshape(p.shape)


@dataclass
class CvxpyFamilyBuilder:
    """A problem of CVXPY that is built step by step.

    Attributes:
        rng: the generator of all numbers.
        whole: whether numbers are small integers, so that costs tie and vertices are degenerate.
        terms: the terms of the minimised objective.
        rows: the constraints.
        draws: the parameters, each with a function that draws its values.
        recourse: constraints that have a parameter, each with the price of a violation.
    """

    rng: Rng
    whole: bool = False
    terms: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    draws: dict[Any, Callable[[Rng], Array]] = field(default_factory=dict)
    recourse: dict[Any, Any] = field(default_factory=dict)

    def normal(self, *shape: int) -> Array:
        """Draw standard normal numbers or, if ``whole``, integers from −3 to 3."""
        return random_program_entries(self.rng, shape, self.whole)

    def psd(self, n: int) -> Array:
        """Draw a positive semidefinite matrix (n, n), of low rank with probability 1/2."""
        W = self.rng.normal(size=(n, max(1, n // 2) if self.rng.random() < 0.5 else n + 1))
        return np.asarray(W @ W.T / n)

    def cost(self, size: int, draw: Callable[[Rng], Array] | None = None) -> Any:
        """Add a predicted cost of ``size`` decisions, and return the expression of the cost.

        The expression is a parameter or, with probability 1/5 if ``draw`` is omitted, a linear function of a shorter
        parameter.

        Args:
            size: the number of decisions.
            draw: function that draws the values of the parameter. By default they are standard normal, or integers if
                ``whole``.
        """
        if draw is None and self.rng.random() < 0.2:
            few = max(1, size // 2)
            return self.normal(size, few) @ self.cost(few, lambda rng: rng.normal(size=few))
        price = cp.Parameter(size, name=f"price{len(self.draws)}")
        self.draws[price] = draw or (lambda rng: random_program_entries(rng, (size,), self.whole))
        return price

    def limit(self, left: Any, kind: str, low: float, high: float, price: Any) -> None:
        """Add a constraint whose right-hand side is a parameter.

        Args:
            left: the left-hand side.
            kind: "<=", ">=" or "==".
            low, high: the range of the parameter.
            price: the price of a violation; for "==" a pair of prices, one for each direction.
        """
        level = cp.Parameter(name=f"level{len(self.draws)}")
        self.draws[level] = lambda rng: np.atleast_1d(rng.uniform(low, high))
        row = {"<=": left <= level, ">=": left >= level, "==": left == level}[kind]
        self.rows.append(row)
        self.recourse[row] = price

    def box(self, n: int, name: str = "x") -> Any:
        """Add and return a variable (n,) with bounds around 0, which are constraints or attributes of the variable."""
        low, high = -self.rng.uniform(0.2, 2.0, n), self.rng.uniform(0.2, 2.0, n)
        if self.whole:
            low, high = np.floor(low), np.ceil(high)
        if self.rng.random() < 0.3:
            return cp.Variable(n, name=name, bounds=[low, high])
        x = cp.Variable(n, name=name)
        self.rows += [x >= low, x <= high]
        return x

    def polytope(self, n: int) -> tuple[Any, Array]:
        """Add a variable (n,) that constraints confine to a polytope, and return the variable and a feasible point.

        The polytope is a box, a box with inequalities or with equalities, or the simplex.
        """
        kind = self.rng.choice(["box", "rows", "equalities", "simplex"])
        if kind == "simplex":
            x = cp.Variable(n, name="x", nonneg=True)
            self.rows.append(cp.sum(x) == 1)
            return x, np.full(n, 1.0 / n)
        x = self.box(n)
        inside = np.zeros(n) if self.whole else 0.1 * self.rng.uniform(-1, 1, n)
        if kind == "rows":
            G = self.normal(int(self.rng.integers(1, n)), n)
            self.rows.append(G @ x <= G @ inside + self.rng.uniform(0.05, 1.0, len(G)))
        elif kind == "equalities":
            A = self.normal(int(self.rng.integers(1, max(2, n // 2))), n)
            self.rows.append(A @ x == A @ inside)
        return x, inside

    def affine(self, x: Any) -> Any:
        """Return x, its first entries, its difference from a point, or affine combinations of it, chosen at random."""
        rng, n = self.rng, x.size
        kind = rng.choice(["all", "part", "shifted", "combined"])
        if kind == "part":
            return x[: max(1, n // 2)]
        if kind == "shifted":
            return x - rng.uniform(-0.3, 0.3, n)
        if kind == "combined":
            rows = int(rng.integers(1, n + 1))
            return self.normal(rows, n) @ x + rng.uniform(-0.3, 0.3, rows) * (not self.whole)
        return x

    def add_terms(self, x: Any, terms: dict[str, Callable[[CvxpyFamilyBuilder, Any], Any]], most: int) -> None:
        """Add terms to the objective, between one and ``most`` of them, each of a random affine expression of x."""
        for name in self.rng.choice(list(terms), size=int(self.rng.integers(1, most + 1)), replace=False):
            term = terms[str(name)](self, self.affine(x))
            self.terms.append(float(self.rng.uniform(0.05, 1.0)) * term)

    def build(self, family: str) -> CvxpyFamilyCase:
        """Return the problem with samples of its parameters.

        One problem in four has an objective in another unit, and three in ten are maximised.
        """
        scale = float(10.0 ** self.rng.uniform(-3, 3)) if self.rng.random() < 0.25 else 1.0
        total = scale * sum(self.terms)
        objective = cp.Maximize(-total) if self.rng.random() < 0.3 else cp.Minimize(total)
        true, other = (
            np.stack([np.concatenate([draw(self.rng) for draw in self.draws.values()]) for _ in range(SAMPLES)])
            for _ in range(2)
        )
        share = self.rng.uniform(0.2, 0.8)  # a forecast lies between two values in the range of the parameter
        predicted = (1 - share) * true + share * other
        prices = {
            row: tuple(scale * one for one in price) if isinstance(price, tuple) else scale * price
            for row, price in self.recourse.items()
        }
        problem = cp.Problem(objective, self.rows)
        return CvxpyFamilyCase(family, problem, list(self.draws), true, predicted, prices or None, scale)


LINEAR_TERMS: dict[str, Callable[[CvxpyFamilyBuilder, Any], Any]] = {
    "abs": lambda builder, u: cp.sum(cp.abs(u)),
    "norm1": lambda builder, u: cp.norm1(u),
    "max": lambda builder, u: cp.max(u),
    "maximum": lambda builder, u: cp.sum(cp.maximum(u, -0.5 * u, 0.1)),
    "pos": lambda builder, u: cp.sum(cp.pos(u)),
    "norm_inf": lambda builder, u: cp.norm_inf(u),
    "sum_largest": lambda builder, u: cp.sum_largest(u, min(2, u.size)),
    "tv": lambda builder, u: cp.norm1(cp.diff(u)) if u.size > 1 else cp.abs(cp.sum(u)),
}
"""Terms of an affine expression u that CVXPY transforms to linear constraints."""

CURVED_TERMS: dict[str, Callable[[CvxpyFamilyBuilder, Any], Any]] = {
    "sum_squares": lambda builder, u: cp.sum_squares(u),
    "quad_form": lambda builder, u: cp.quad_form(u, cp.psd_wrap(builder.psd(u.size))),
    "square": lambda builder, u: cp.square(cp.sum(u)),
    "huber": lambda builder, u: cp.sum(cp.huber(u, float(builder.rng.uniform(0.1, 1.0)))),
}
"""Terms of an affine expression u that are quadratic, or quadratic near zero."""


def _linear_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build an LP with piecewise linear terms."""
    x, _ = builder.polytope(int(builder.rng.integers(2, 9)))
    builder.terms.append(builder.cost(x.size) @ x)
    builder.add_terms(x, LINEAR_TERMS, 2)


def _curved_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a QP with quadratic terms and, with probability 1/2, piecewise linear terms."""
    x, _ = builder.polytope(int(builder.rng.integers(2, 9)))
    builder.terms.append(builder.cost(x.size) @ x)
    builder.add_terms(x, CURVED_TERMS, 2)
    if builder.rng.random() < 0.5:
        builder.add_terms(x, LINEAR_TERMS, 1)


def _two_variable_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a problem of two vectors of variables with a common constraint. Only one vector has a predicted cost."""
    x, inside = builder.polytope(int(builder.rng.integers(2, 6)))
    y = builder.box(int(builder.rng.integers(1, 4)), "y")
    row = builder.rng.normal(size=x.size)
    builder.rows.append(row @ x + cp.sum(y) <= float(row @ inside) + 0.3)
    builder.terms += [builder.cost(x.size) @ x, builder.rng.normal(size=y.size) @ y]
    builder.add_terms(x if builder.rng.random() < 0.5 else y, CURVED_TERMS, 1)
    if builder.rng.random() < 0.5:
        builder.add_terms(cp.hstack([x, y]), LINEAR_TERMS, 1)


def _turnover_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a portfolio problem with a covariance and trading costs. Some problems limit a sector or the turnover."""
    rng, n = builder.rng, int(builder.rng.integers(3, 11))
    w, before = cp.Variable(n, name="w", nonneg=True), rng.dirichlet(np.ones(n))
    loadings = rng.normal(size=(n, 2))
    covariance = 0.05 * loadings @ loadings.T + np.diag(rng.uniform(0.01, 0.05, n))
    builder.rows.append(cp.sum(w) == 1)
    builder.terms.append(-builder.cost(n, lambda rng: 0.05 * rng.normal(size=n)) @ w)
    builder.terms.append(cp.quad_form(w, cp.psd_wrap(covariance)))
    builder.terms.append(float(rng.uniform(0.001, 0.02)) * cp.norm1(w - before))
    if rng.random() < 0.4:
        builder.rows.append(cp.sum(w[: n // 2]) <= 0.7)
    if rng.random() < 0.3:
        builder.rows.append(cp.norm1(w - before) <= 0.8)


def _factor_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a portfolio problem with the risk of single assets and of factors. The factors are variables, too."""
    rng, n, k = builder.rng, int(builder.rng.integers(3, 11)), int(builder.rng.integers(1, 4))
    w, f = cp.Variable(n, name="w"), cp.Variable(k, name="f")
    builder.rows += [f == rng.normal(size=(k, n)) @ w, cp.sum(w) == 1, w >= 0]
    own = rng.uniform(0.1, 0.3, n) * (rng.random(n) < 0.7)
    builder.terms += [-builder.cost(n, lambda rng: 0.2 * rng.normal(size=n)) @ w, 0.2 * cp.sum_squares(f)]
    builder.terms.append(cp.sum_squares(cp.multiply(own, w)))
    if rng.random() < 0.4:
        builder.terms.append(0.02 * cp.norm1(w - 1.0 / n))


def _battery_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a battery problem that is linear or has quadratic terms of the state, the inflow or the outflow."""
    rng, T = builder.rng, int(builder.rng.integers(3, 9))
    z_in, z_out, state = (cp.Variable(T + i // 2, name=name) for i, name in enumerate(("z_in", "z_out", "state")))
    builder.rows += [state[0] == 0.5, state[1:] == state[:-1] - z_out + 0.9 * z_in]
    builder.rows += [z_in >= 0, z_out >= 0, state >= 0, z_in <= 0.5, z_out <= 0.2, state <= 1]
    builder.terms.append(builder.cost(T, lambda rng: 3.0 + rng.normal(size=T)) @ (z_in - z_out))
    for weight, term in (
        (0.1, cp.sum_squares(state - 0.5)),
        (0.05, cp.sum_squares(z_in)),
        (0.05, cp.sum_squares(z_out)),
    ):
        if rng.random() < 0.5:
            builder.terms.append(weight * term)


def _demand_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a problem of orders with a predicted limit, whose violation has a price. Costs may be predicted, too."""
    rng, n = builder.rng, int(builder.rng.integers(2, 7))
    x = cp.Variable(n, name="x", nonneg=True)
    builder.rows.append(x <= rng.uniform(0.5, 2.0, n))
    rates = rng.uniform(0.5, 1.5, n)
    kind = str(rng.choice(["<=", ">=", "=="]))
    price = (float(rng.uniform(2, 6)), float(rng.uniform(1, 4))) if kind == "==" else float(rng.uniform(2, 6))
    builder.limit(rates @ x, kind, 0.05 * n, 0.2 * n, price)
    costs = rng.uniform(0.2, 1.0, n) * (-1.0 if kind == "<=" else 1.0)
    predicted = rng.random() < 0.5
    builder.terms.append((builder.cost(n, lambda rng: costs * rng.uniform(0.5, 1.5, n)) if predicted else costs) @ x)
    if rng.random() < 0.7:
        builder.add_terms(x, CURVED_TERMS, 1)
    if rng.random() < 0.3:
        builder.add_terms(x, LINEAR_TERMS, 1)


def _transport_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a transport problem with a predicted matrix of costs. The demands may be predicted, too."""
    rng, a, b = builder.rng, int(builder.rng.integers(2, 4)), int(builder.rng.integers(2, 5))
    X, C = cp.Variable((a, b), name="X", nonneg=True), cp.Parameter((a, b), name="C")
    builder.draws[C] = lambda rng: rng.uniform(0.2, 2.0, a * b)
    builder.terms.append(cp.sum(cp.multiply(C, X)))
    builder.rows.append(cp.sum(X, axis=1) <= 2.0 * b / a)
    if rng.random() < 0.5:
        need = cp.Parameter(b, name="need")
        builder.draws[need] = lambda rng: rng.uniform(0.5, 1.5, b)
        row = cp.sum(X, axis=0) >= need
        builder.rows.append(row)
        builder.recourse[row] = 5.0
    else:
        builder.rows.append(cp.sum(X, axis=0) == (np.ones(b) if builder.whole else rng.uniform(0.5, 1.5, b)))
    if rng.random() < 0.5:
        builder.terms.append(float(rng.uniform(0.1, 1.0)) * cp.sum_squares(X if rng.random() < 0.5 else X[0]))


def _control_cvxpy_family(builder: CvxpyFamilyBuilder) -> None:
    """Build a control problem. Inputs with predicted prices steer a state without bounds to a target."""
    rng, T, k = builder.rng, int(builder.rng.integers(2, 7)), int(builder.rng.integers(1, 3))
    x, u = cp.Variable((k, T + 1), name="x"), cp.Variable((k, T), name="u")
    A, target = np.eye(k) + 0.2 * rng.normal(size=(k, k)), rng.normal(size=k)
    builder.rows += [x[:, 0] == 0, x[:, 1:] == A @ x[:, :-1] + u, cp.abs(u) <= 1]
    price = builder.cost(T, lambda rng: 0.3 * rng.normal(size=T))
    builder.terms.append(price @ cp.sum(u, axis=0))
    off = x[:, -1] - target if rng.random() < 0.5 else x[:, 1:] - target[:, None]
    terms = (cp.sum_squares(off), cp.sum(cp.abs(off)), cp.sum(cp.huber(off, 0.5)))
    builder.terms.append(terms[int(rng.integers(3))])
    if rng.random() < 0.4:
        builder.terms.append(0.1 * cp.sum_squares(u))


CVXPY_FAMILIES: dict[str, Callable[[CvxpyFamilyBuilder], None]] = {
    "linear": _linear_cvxpy_family,
    "curved": _curved_cvxpy_family,
    "two variables": _two_variable_cvxpy_family,
    "turnover": _turnover_cvxpy_family,
    "factor model": _factor_cvxpy_family,
    "battery": _battery_cvxpy_family,
    "demand": _demand_cvxpy_family,
    "transport": _transport_cvxpy_family,
    "control": _control_cvxpy_family,
}
"""The families of problems, each with the function that writes a problem of it."""


def draw_cvxpy_family(seed: int, number: int) -> CvxpyFamilyCase:
    """Draw one problem. The families take turns.

    Args:
        seed: the seed of the run.
        number: the number of the problem within the run.
    """
    family = list(CVXPY_FAMILIES)[number % len(CVXPY_FAMILIES)]
    rng = np.random.default_rng([seed, number])
    builder = CvxpyFamilyBuilder(rng, whole=bool(rng.random() < 0.2))
    CVXPY_FAMILIES[family](builder)
    return builder.build(family)
