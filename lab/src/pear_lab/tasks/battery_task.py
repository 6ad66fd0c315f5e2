"""Charging and discharging a battery by the hour. The hourly prices are predicted, and the battery is known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import CostMap, Model, Problem


@dataclass(frozen=True)
class Battery:
    """The sizes of a battery, and the costs of its use besides the price of energy.

    In hour t, from 0 to T − 1, the inflow is inₜ and the outflow is outₜ. The energy in the battery is stateₜ before
    hour t, and state_T at the end. A plan minimises
    ``price·(in − out) + wear·Σ out + level_penalty ‖state − capacity/2‖² + flow_penalty (‖in‖² + ‖out‖²)``
    subject to ``state₀ = start``, ``stateₜ₊₁ = stateₜ + efficiency·inₜ − outₜ``, ``0 ≤ state ≤ capacity``,
    ``0 ≤ in ≤ charge`` and ``0 ≤ out ≤ discharge``.

    Attributes:
        hours: T, the number of planned hours.
        capacity: the most energy that the battery can hold.
        efficiency: the share of the inflow that reaches the battery.
        charge, discharge: the largest inflow and outflow of an hour.
        start: the energy in the battery before the first hour.
        wear: the cost of a unit of outflow.
        level_penalty, flow_penalty: weights of the squares. If both are 0, the problem is a linear program.
        sells_rest: whether the energy left after the last hour is sold at the last predicted price. The objective then
            has one more term, the price of the last hour times −state_T.
    """

    hours: int = 24
    capacity: float = 1.0
    efficiency: float = 0.9
    charge: float = 0.5
    discharge: float = 0.2
    start: float = 0.5
    wear: float = 0.0
    level_penalty: float = 0.1
    flow_penalty: float = 0.05
    sells_rest: bool = False

    def __post_init__(self) -> None:
        if self.hours < 1 or not 0 < self.efficiency <= 1 or not 0 <= self.start <= self.capacity:
            raise ProblemError(
                "a battery needs at least one hour, an efficiency of at most 1 and a start within its capacity; got "
                f"hours={self.hours}, efficiency={self.efficiency}, start={self.start}, capacity={self.capacity}"
            )


PJM = Battery()
"""The battery of Donti et al. 2017 and Yeh et al. 2024: a quadratic program of 73 variables."""

MARKET = Battery(capacity=4.0, efficiency=0.92, charge=1.0, discharge=1.0, start=0.0, wear=4.0, level_penalty=0.0, flow_penalty=0.0)  # fmt: skip  # noqa: E501
"""A battery of 4 MWh and 1 MW that is planned for one day: a linear program."""


def battery(spec: Battery = PJM) -> Model:
    """Make the model of a battery over T hours.

    T prices are predicted. The variables are T inflows, T outflows and T + 1 states. ``Model.offset`` is
    the constant ``level_penalty·(T + 1)·(capacity/2)²`` of the objective.

    Example:
        >>> model = battery(Battery(hours=2, start=0.0, level_penalty=0.0))
        >>> model.problem
        Problem(min, n=7, quadratic, 3 equalities, bounds)
        >>> model.inputs, model.names[0], model.variables[0]
        (2, 'price 0', 'in 0')
    """
    T, half = spec.hours, spec.capacity / 2
    n = 3 * T + 1
    M = torch.zeros(n, T, dtype=torch.float64)
    M[:T], M[T : 2 * T] = torch.eye(T), -torch.eye(T)
    if spec.sells_rest:
        M[-1, -1] = -1.0
    known = torch.zeros(n, dtype=torch.float64)
    known[T : 2 * T], known[2 * T :] = spec.wear, -2 * spec.level_penalty * half
    curvature = torch.full((n,), 2 * spec.flow_penalty, dtype=torch.float64)
    curvature[2 * T :] = 2 * spec.level_penalty
    A, b = _battery_state_equations(spec)
    ub = torch.cat([torch.full((count,), most, dtype=torch.float64) for count, most in _battery_limits(spec)])
    problem = Problem(Q=torch.diag(curvature) if bool(curvature.any()) else None, A=A, b=b, lb=0.0, ub=ub)
    variables = [f"{what} {t}" for what, count in (("in", T), ("out", T), ("state", T + 1)) for t in range(count)]
    return Model(
        problem,
        offset=spec.level_penalty * (T + 1) * half**2,
        variables=tuple(variables),
        layout={"in": torch.arange(T), "out": torch.arange(T, 2 * T), "state": torch.arange(2 * T, n)},
        cost_map=CostMap(M, known, [f"price {t}" for t in range(T)]),
    )


def _battery_limits(spec: Battery) -> tuple[tuple[int, float], ...]:
    """Return three pairs of a number of variables and their upper bound: for inflows, for outflows and for states."""
    return (spec.hours, spec.charge), (spec.hours, spec.discharge), (spec.hours + 1, spec.capacity)


def _battery_state_equations(spec: Battery) -> tuple[Tensor, Tensor]:
    """Return A (T + 1, n) and b (T + 1,) of the equations of the states over T hours.

    The first row is ``state₀ = start``, the others are ``stateₜ₊₁ − stateₜ − efficiency·inₜ + outₜ = 0``.
    """
    T = spec.hours
    A, b = torch.zeros(T + 1, 3 * T + 1, dtype=torch.float64), torch.zeros(T + 1, dtype=torch.float64)
    A[0, 2 * T], b[0] = 1.0, spec.start
    for t in range(T):
        A[t + 1, t], A[t + 1, T + t] = -spec.efficiency, 1.0
        A[t + 1, 2 * T + t], A[t + 1, 2 * T + t + 1] = -1.0, 1.0
    return A, b
