"""Random problems written in CVXPY, as users write them: what they minimise, their constraints and their parameters.

Every problem has a solution for all parameters in the ranges they are drawn from. A problem depends on its seed and its
number alone, not on what else is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pear.optional_packages import import_optional
from pear_lab.benchmarks.random_programs import random_entries
from pear_lab.judge.judged_program import Array

cp: Any = import_optional("cvxpy", "cvxpy", "pear stress cvxpy")
Rng = np.random.Generator
SAMPLES = 4
"""Samples of a problem: values of its parameters, forecast and true."""


@dataclass(frozen=True)
class CvxpyCase:
    """A problem of CVXPY with samples of its parameters.

    Attributes:
        family: name of the family in ``FAMILIES``.
        problem: the problem.
        parameters: its parameters, all of them predicted.
        true: (B, k) values of the parameters, one after the other, each flattened.
        predicted: (B, k) forecasts of them.
        recourse: prices of the constraints with parameters; None where there are none.
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
        """Give the parameters the values (k,) of one sample."""
        ends = np.cumsum([p.size for p in self.parameters])[:-1]
        for p, part in zip(self.parameters, np.split(values, ends), strict=True):
            p.value = part.reshape(p.shape)


@dataclass
class _Parts:
    """A problem that is being written.

    Attributes:
        rng: draws it.
        whole: whether data are small integers, so that costs tie and vertices are degenerate.
        terms: what is minimised, to be summed.
        rows: constraints.
        draws: for each parameter the function that draws its values.
        recourse: prices of constraints.
    """

    rng: Rng
    whole: bool = False
    terms: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    draws: dict[Any, Callable[[Rng], Array]] = field(default_factory=dict)
    recourse: dict[Any, Any] = field(default_factory=dict)

    def normal(self, *shape: int) -> Array:
        """Normal numbers, or integers from −3 to 3."""
        return random_entries(self.rng, shape, self.whole)

    def cost(self, size: int, draw: Callable[[Rng], Array] | None = None) -> Any:
        """A predicted cost of ``size`` decisions: a parameter, or now and then a linear function of a shorter one."""
        if draw is None and self.rng.random() < 0.2:
            few = max(1, size // 2)
            return self.normal(size, few) @ self.cost(few, lambda rng: rng.normal(size=few))
        price = cp.Parameter(size, name=f"price{len(self.draws)}")
        self.draws[price] = draw or (lambda rng: random_entries(rng, (size,), self.whole))
        return price

    def limit(self, left: Any, kind: str, low: float, high: float, price: Any) -> None:
        """A constraint whose right-hand side is a parameter between two numbers, with the price of its violation."""
        level = cp.Parameter(name=f"level{len(self.draws)}")
        self.draws[level] = lambda rng: np.atleast_1d(rng.uniform(low, high))
        row = {"<=": left <= level, ">=": left >= level, "==": left == level}[kind]
        self.rows.append(row)
        self.recourse[row] = price

    def case(self, family: str) -> CvxpyCase:
        """The problem, now and then in other units or as one that maximises, with samples of its parameters."""
        scale = float(10.0 ** self.rng.uniform(-3, 3)) if self.rng.random() < 0.25 else 1.0
        total = scale * sum(self.terms)
        objective = cp.Maximize(-total) if self.rng.random() < 0.3 else cp.Minimize(total)
        true, other = (
            np.stack([np.concatenate([draw(self.rng) for draw in self.draws.values()]) for _ in range(SAMPLES)])
            for _ in range(2)
        )
        share = self.rng.uniform(0.2, 0.8)  # forecasts stay within the range of what may come true
        predicted = (1 - share) * true + share * other
        problem, prices = cp.Problem(objective, self.rows), {row: _scaled(p, scale) for row, p in self.recourse.items()}
        return CvxpyCase(family, problem, list(self.draws), true, predicted, prices or None, scale)


def _scaled(price: Any, scale: float) -> Any:
    """A price, or a pair of prices, in other units."""
    return tuple(scale * one for one in price) if isinstance(price, tuple) else scale * price


def _box(parts: _Parts, n: int, name: str = "x") -> Any:
    """A variable between bounds, with zero inside; bounds are constraints or attributes."""
    low, high = -parts.rng.uniform(0.2, 2.0, n), parts.rng.uniform(0.2, 2.0, n)
    if parts.whole:
        low, high = np.floor(low), np.ceil(high)
    if parts.rng.random() < 0.3:
        return cp.Variable(n, name=name, bounds=[low, high])
    x = cp.Variable(n, name=name)
    parts.rows += [x >= low, x <= high]
    return x


def _feasible_set(parts: _Parts, n: int) -> tuple[Any, Array]:
    """A variable in a polytope, and a point inside: a box with rows or equalities, or the simplex."""
    kind = parts.rng.choice(["box", "rows", "equalities", "simplex"])
    if kind == "simplex":
        x = cp.Variable(n, name="x", nonneg=True)
        parts.rows.append(cp.sum(x) == 1)
        return x, np.full(n, 1.0 / n)
    x = _box(parts, n)
    inside = np.zeros(n) if parts.whole else 0.1 * parts.rng.uniform(-1, 1, n)
    if kind == "rows":
        G = parts.normal(int(parts.rng.integers(1, n)), n)
        parts.rows.append(G @ x <= G @ inside + parts.rng.uniform(0.05, 1.0, len(G)))
    elif kind == "equalities":
        A = parts.normal(int(parts.rng.integers(1, max(2, n // 2))), n)
        parts.rows.append(A @ x == A @ inside)
    return x, inside


def _affine(parts: _Parts, x: Any) -> Any:
    """A random affine function of x: x itself, some of it, a difference from a point, or a few combinations."""
    rng, n = parts.rng, x.size
    kind = rng.choice(["all", "part", "shifted", "combined"])
    if kind == "part":
        return x[: max(1, n // 2)]
    if kind == "shifted":
        return x - rng.uniform(-0.3, 0.3, n)
    if kind == "combined":
        rows = int(rng.integers(1, n + 1))
        return parts.normal(rows, n) @ x + rng.uniform(-0.3, 0.3, rows) * (not parts.whole)
    return x


def _psd(rng: Rng, n: int) -> Array:
    """A positive semidefinite matrix (n, n), half of the time of low rank."""
    W = rng.normal(size=(n, max(1, n // 2) if rng.random() < 0.5 else n + 1))
    return np.asarray(W @ W.T / n)


LINEAR_TERMS: dict[str, Callable[[_Parts, Any], Any]] = {
    "abs": lambda parts, u: cp.sum(cp.abs(u)),
    "norm1": lambda parts, u: cp.norm1(u),
    "max": lambda parts, u: cp.max(u),
    "maximum": lambda parts, u: cp.sum(cp.maximum(u, -0.5 * u, 0.1)),
    "pos": lambda parts, u: cp.sum(cp.pos(u)),
    "norm_inf": lambda parts, u: cp.norm_inf(u),
    "sum_largest": lambda parts, u: cp.sum_largest(u, min(2, u.size)),
    "tv": lambda parts, u: cp.norm1(cp.diff(u)) if u.size > 1 else cp.abs(cp.sum(u)),
}
"""Terms that CVXPY writes with linear constraints, of an affine function u."""

CURVED_TERMS: dict[str, Callable[[_Parts, Any], Any]] = {
    "sum_squares": lambda parts, u: cp.sum_squares(u),
    "quad_form": lambda parts, u: cp.quad_form(u, cp.psd_wrap(_psd(parts.rng, u.size))),
    "square": lambda parts, u: cp.square(cp.sum(u)),
    "huber": lambda parts, u: cp.sum(cp.huber(u, float(parts.rng.uniform(0.1, 1.0)))),
}
"""Terms that are quadratic, of an affine function u."""


def _add_terms(parts: _Parts, x: Any, terms: dict[str, Callable[[_Parts, Any], Any]], most: int) -> None:
    for name in parts.rng.choice(list(terms), size=int(parts.rng.integers(1, most + 1)), replace=False):
        term = terms[str(name)](parts, _affine(parts, x))
        parts.terms.append(float(parts.rng.uniform(0.05, 1.0)) * term)


def _linear(parts: _Parts) -> None:
    """LPs with piecewise linear terms."""
    x, _ = _feasible_set(parts, int(parts.rng.integers(2, 9)))
    parts.terms.append(parts.cost(x.size) @ x)
    _add_terms(parts, x, LINEAR_TERMS, 2)


def _curved(parts: _Parts) -> None:
    """QPs with quadratic terms, and sometimes piecewise linear ones."""
    x, _ = _feasible_set(parts, int(parts.rng.integers(2, 9)))
    parts.terms.append(parts.cost(x.size) @ x)
    _add_terms(parts, x, CURVED_TERMS, 2)
    if parts.rng.random() < 0.5:
        _add_terms(parts, x, LINEAR_TERMS, 1)


def _two_variables(parts: _Parts) -> None:
    """Two variables in shared rows, of which one may have no curvature; the cost of one alone is predicted."""
    x, inside = _feasible_set(parts, int(parts.rng.integers(2, 6)))
    y = _box(parts, int(parts.rng.integers(1, 4)), "y")
    row = parts.rng.normal(size=x.size)
    parts.rows.append(row @ x + cp.sum(y) <= float(row @ inside) + 0.3)
    parts.terms += [parts.cost(x.size) @ x, parts.rng.normal(size=y.size) @ y]
    _add_terms(parts, x if parts.rng.random() < 0.5 else y, CURVED_TERMS, 1)
    if parts.rng.random() < 0.5:
        _add_terms(parts, cp.hstack([x, y]), LINEAR_TERMS, 1)


def _turnover(parts: _Parts) -> None:
    """Portfolios with a covariance, and a price on what is traded; sometimes with sector limits."""
    rng, n = parts.rng, int(parts.rng.integers(3, 11))
    w, before = cp.Variable(n, name="w", nonneg=True), rng.dirichlet(np.ones(n))
    loadings = rng.normal(size=(n, 2))
    covariance = 0.05 * loadings @ loadings.T + np.diag(rng.uniform(0.01, 0.05, n))
    parts.rows.append(cp.sum(w) == 1)
    parts.terms.append(-parts.cost(n, lambda rng: 0.05 * rng.normal(size=n)) @ w)
    parts.terms.append(cp.quad_form(w, cp.psd_wrap(covariance)))
    parts.terms.append(float(rng.uniform(0.001, 0.02)) * cp.norm1(w - before))
    if rng.random() < 0.4:
        parts.rows.append(cp.sum(w[: n // 2]) <= 0.7)
    if rng.random() < 0.3:
        parts.rows.append(cp.norm1(w - before) <= 0.8)


def _factor_model(parts: _Parts) -> None:
    """Portfolios whose risk is that of factors, a variable of their own, and of the assets themselves."""
    rng, n, k = parts.rng, int(parts.rng.integers(3, 11)), int(parts.rng.integers(1, 4))
    w, f = cp.Variable(n, name="w"), cp.Variable(k, name="f")
    parts.rows += [f == rng.normal(size=(k, n)) @ w, cp.sum(w) == 1, w >= 0]
    own = rng.uniform(0.1, 0.3, n) * (rng.random(n) < 0.7)
    parts.terms += [-parts.cost(n, lambda rng: 0.2 * rng.normal(size=n)) @ w, 0.2 * cp.sum_squares(f)]
    parts.terms.append(cp.sum_squares(cp.multiply(own, w)))
    if rng.random() < 0.4:
        parts.terms.append(0.02 * cp.norm1(w - 1.0 / n))


def _battery(parts: _Parts) -> None:
    """A battery over some hours: linear, or with quadratic terms of its state, of what goes in or of what goes out."""
    rng, T = parts.rng, int(parts.rng.integers(3, 9))
    z_in, z_out, state = (cp.Variable(T + i // 2, name=name) for i, name in enumerate(("z_in", "z_out", "state")))
    parts.rows += [state[0] == 0.5, state[1:] == state[:-1] - z_out + 0.9 * z_in]
    parts.rows += [z_in >= 0, z_out >= 0, state >= 0, z_in <= 0.5, z_out <= 0.2, state <= 1]
    parts.terms.append(parts.cost(T, lambda rng: 3.0 + rng.normal(size=T)) @ (z_in - z_out))
    for weight, term in (
        (0.1, cp.sum_squares(state - 0.5)),
        (0.05, cp.sum_squares(z_in)),
        (0.05, cp.sum_squares(z_out)),
    ):
        if rng.random() < 0.5:
            parts.terms.append(weight * term)


def _demand(parts: _Parts) -> None:
    """Orders that must meet predicted levels, or stay below them, at a price; costs may be predicted, too."""
    rng, n = parts.rng, int(parts.rng.integers(2, 7))
    x = cp.Variable(n, name="x", nonneg=True)
    parts.rows.append(x <= rng.uniform(0.5, 2.0, n))
    rates = rng.uniform(0.5, 1.5, n)
    kind = str(rng.choice(["<=", ">=", "=="]))
    price = (float(rng.uniform(2, 6)), float(rng.uniform(1, 4))) if kind == "==" else float(rng.uniform(2, 6))
    parts.limit(rates @ x, kind, 0.05 * n, 0.2 * n, price)
    costs = rng.uniform(0.2, 1.0, n) * (-1.0 if kind == "<=" else 1.0)
    predicted = rng.random() < 0.5
    parts.terms.append((parts.cost(n, lambda rng: costs * rng.uniform(0.5, 1.5, n)) if predicted else costs) @ x)
    if rng.random() < 0.7:
        _add_terms(parts, x, CURVED_TERMS, 1)
    if rng.random() < 0.3:
        _add_terms(parts, x, LINEAR_TERMS, 1)


def _transport(parts: _Parts) -> None:
    """A matrix of flows from origins to destinations, with a matrix of costs; supplies or demands may be predicted."""
    rng, a, b = parts.rng, int(parts.rng.integers(2, 4)), int(parts.rng.integers(2, 5))
    X, C = cp.Variable((a, b), name="X", nonneg=True), cp.Parameter((a, b), name="C")
    parts.draws[C] = lambda rng: rng.uniform(0.2, 2.0, a * b)
    parts.terms.append(cp.sum(cp.multiply(C, X)))
    parts.rows.append(cp.sum(X, axis=1) <= 2.0 * b / a)
    if rng.random() < 0.5:
        need = cp.Parameter(b, name="need")
        parts.draws[need] = lambda rng: rng.uniform(0.5, 1.5, b)
        row = cp.sum(X, axis=0) >= need
        parts.rows.append(row)
        parts.recourse[row] = 5.0
    else:
        parts.rows.append(cp.sum(X, axis=0) == (np.ones(b) if parts.whole else rng.uniform(0.5, 1.5, b)))
    if rng.random() < 0.5:
        parts.terms.append(float(rng.uniform(0.1, 1.0)) * cp.sum_squares(X if rng.random() < 0.5 else X[0]))


def _control(parts: _Parts) -> None:
    """Steer a state without bounds over some periods: the inputs have predicted prices, the state a target."""
    rng, T, k = parts.rng, int(parts.rng.integers(2, 7)), int(parts.rng.integers(1, 3))
    x, u = cp.Variable((k, T + 1), name="x"), cp.Variable((k, T), name="u")
    A, target = np.eye(k) + 0.2 * rng.normal(size=(k, k)), rng.normal(size=k)
    parts.rows += [x[:, 0] == 0, x[:, 1:] == A @ x[:, :-1] + u, cp.abs(u) <= 1]
    price = parts.cost(T, lambda rng: 0.3 * rng.normal(size=T))
    parts.terms.append(price @ cp.sum(u, axis=0))
    off = x[:, -1] - target if rng.random() < 0.5 else x[:, 1:] - target[:, None]
    terms = (cp.sum_squares(off), cp.sum(cp.abs(off)), cp.sum(cp.huber(off, 0.5)))
    parts.terms.append(terms[int(rng.integers(3))])
    if rng.random() < 0.4:
        parts.terms.append(0.1 * cp.sum_squares(u))


FAMILIES: dict[str, Callable[[_Parts], None]] = {
    "linear": _linear,
    "curved": _curved,
    "two variables": _two_variables,
    "turnover": _turnover,
    "factor model": _factor_model,
    "battery": _battery,
    "demand": _demand,
    "transport": _transport,
    "control": _control,
}
"""The families, by name: each writes one problem."""


def draw_case(seed: int, number: int) -> CvxpyCase:
    """Draw one problem; families take turns.

    Args:
        seed: the seed of the run.
        number: the number of the problem within the run.
    """
    family = list(FAMILIES)[number % len(FAMILIES)]
    rng = np.random.default_rng([seed, number])
    parts = _Parts(rng, whole=bool(rng.random() < 0.2))
    FAMILIES[family](parts)
    return parts.case(family)
