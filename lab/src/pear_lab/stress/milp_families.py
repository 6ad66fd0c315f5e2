"""Random mixed-integer programs as planners write them, with switches, big M, whole numbers, ties and odd units.

A program depends on its seed and its number only. Some programs have no solution, because rows contradict each other,
no integer satisfies the rows, or the objective is unbounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pear_lab.judge.judged_program import Array, JudgedProgram, Mask

Rng = np.random.Generator
INFEASIBLE, UNBOUNDED, SPARSE = 0.1, 0.05, 0.2
"""The shares of programs that are made infeasible, are made unbounded, or have sparse matrices."""


@dataclass(frozen=True)
class MilpFamilyCase:
    """A program ``min (or max) cᵀz`` subject to ``Az = b``, ``Gz ≤ h`` and ``lb ≤ z ≤ ub``, with some z integer.

    Attributes:
        family: the name of the family in ``MILP_FAMILIES``.
        sense: "min" or "max".
        c, lb, ub: (n,) costs and bounds.
        A, b: (p, n) and (p,) equalities.
        G, h: (m, n) and (m,) inequalities.
        integer: (n,) whether a variable is an integer.
        sparse: whether ``pear.Problem`` gets sparse matrices.
    """

    family: str
    sense: str
    c: Array
    A: Array
    b: Array
    G: Array
    h: Array
    lb: Array
    ub: Array
    integer: Mask
    sparse: bool

    def minimised(self) -> JudgedProgram:
        """Return the program in the judge's form, which is minimised."""
        n, sign = len(self.c), 1.0 if self.sense == "min" else -1.0
        fields = (self.A, self.b, self.G, self.h, self.lb, self.ub, self.integer)
        return JudgedProgram(np.zeros((n, n)), sign * self.c, *fields)


@dataclass
class MilpFamilyBuilder:
    """A program that is built variable by variable and row by row.

    Attributes:
        rng: the generator of all numbers.
        whole: whether numbers are integers, so that costs tie and vertices are degenerate.
        unit: the factor of a change of units, by which ``build`` multiplies the values of all continuous variables.
        lower, upper, costs, integers: bounds, costs and kinds of the variables so far.
        equal, limits: the equalities and the inequalities, each with its coefficients by variable and its right-hand
            side.
    """

    rng: Rng
    whole: bool
    unit: float
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    integers: list[bool] = field(default_factory=list)
    equal: list[tuple[dict[int, float], float]] = field(default_factory=list)
    limits: list[tuple[dict[int, float], float]] = field(default_factory=list)

    def number(self, low: float, high: float) -> float:
        """Draw a number between ``low`` and ``high``, rounded if ``whole``."""
        value = self.rng.uniform(low, high)
        return float(np.round(value)) if self.whole else float(value)

    def numbers(self, low: float, high: float, count: int) -> list[float]:
        """Draw ``count`` numbers between ``low`` and ``high``, rounded if ``whole``."""
        return [self.number(low, high) for _ in range(count)]

    def big_m(self, needed: float) -> float:
        """Draw the coefficient M of a switch: the least valid one, ``needed``, times a factor from 1 to 1e5."""
        return needed * float(self.rng.choice([1.0, 1.0, 1.0, 2.0, 10.0, 1e3, 1e5]))

    def amounts(self, count: int, costs: list[float], most: float = np.inf) -> list[int]:
        """Add ``count`` continuous variables from 0 to ``most`` with a cost each, and return their indices."""
        return self._add_variables(count, costs, most, False)

    def switches(self, count: int, costs: list[float], most: float = 1.0) -> list[int]:
        """Add ``count`` integer variables from 0 to ``most`` with a cost each, and return their indices."""
        return self._add_variables(count, costs, most, True)

    def _add_variables(self, count: int, costs: list[float], most: float, integer: bool) -> list[int]:
        """Add ``count`` variables from 0 to ``most`` with a cost each, and return their indices."""
        first = len(self.costs)
        self.costs += costs
        self.lower += [0.0] * count
        self.upper += [most] * count
        self.integers += [integer] * count
        return list(range(first, first + count))

    def at_most(self, row: dict[int, float], limit: float) -> None:
        """Add the row ``row · z ≤ limit``."""
        self.limits.append((row, limit))

    def at_least(self, row: dict[int, float], limit: float) -> None:
        """Add the row ``row · z ≥ limit``."""
        self.limits.append(({j: -a for j, a in row.items()}, -limit))

    def equals(self, row: dict[int, float], value: float) -> None:
        """Add the row ``row · z = value``."""
        self.equal.append((row, value))

    def build(self, family: str) -> MilpFamilyCase:
        """Return the program, with the values of the continuous variables multiplied by ``unit``.

        Some programs, drawn at random, maximise the negative objective instead. Some have costs in another unit.
        """
        n, integer = len(self.costs), np.array(self.integers)
        (A, b), (G, h) = (_milp_family_matrix(rows, n) for rows in (self.equal, self.limits))
        per = np.where(integer, 1.0, self.unit)  # coefficients of a variable in other units are divided by the unit
        money = float(10.0 ** self.rng.uniform(-3, 4)) if self.rng.random() < 0.3 else 1.0
        sign = -1.0 if self.rng.random() < 0.4 else 1.0
        return MilpFamilyCase(
            family=family,
            sense="max" if sign < 0 else "min",
            c=sign * money * np.array(self.costs) / per,
            A=A / per,
            b=b,
            G=G / per,
            h=h,
            lb=np.array(self.lower) * per,
            ub=np.array(self.upper) * per,
            integer=integer,
            sparse=bool(self.rng.random() < SPARSE),
        )


def _milp_family_matrix(rows: list[tuple[dict[int, float], float]], n: int) -> tuple[Array, Array]:
    """Return r rows as a matrix (r, n) and right-hand sides (r,)."""
    matrix = np.zeros((len(rows), n))
    for i, (row, _) in enumerate(rows):
        for j, value in row.items():
            matrix[i, j] = value
    return matrix, np.array([limit for _, limit in rows], dtype=float)


def _battery_milp_family(p: MilpFamilyBuilder) -> None:
    """Build the program of a battery that never charges and discharges at once, with prices that may be negative."""
    T, power, efficiency = int(p.rng.integers(4, 25)), p.number(1, 9), float(p.rng.choice([1.0, 0.9, 0.95]))
    capacity, prices = power * float(p.rng.choice([1.0, 2.0, 4.5])), p.numbers(-20, 60, T)
    charge, discharge = p.amounts(T, prices), p.amounts(T, [-price + 0.5 for price in prices])
    level, on = p.amounts(T + 1, [0.0] * (T + 1), capacity), p.switches(T, [0.0] * T)
    M = p.big_m(power)
    p.equals({level[0]: 1.0}, float(p.rng.choice([0.0, 0.5])) * capacity)
    for t in range(T):
        balance = {level[t + 1]: 1.0, level[t]: -1.0, charge[t]: -efficiency, discharge[t]: 1 / efficiency}
        p.equals(balance, 0.0)
        p.at_most({charge[t]: 1.0, on[t]: -M}, 0.0)
        p.at_most({discharge[t]: 1.0, on[t]: M}, M)
        p.at_most({charge[t]: 1.0}, power)
        p.at_most({discharge[t]: 1.0}, power)
    if p.rng.random() < 0.3:  # limits the number of hours of charging
        p.at_most(dict.fromkeys(on, 1.0), float(p.rng.integers(1, T)))


def _lot_sizing_milp_family(p: MilpFamilyBuilder) -> None:
    """Build a lot-sizing program of products with set-up costs and stocks, which may share a machine."""
    T, products = int(p.rng.integers(3, 9)), int(p.rng.integers(1, 4))
    capacity = p.number(30, 60) * products
    made, set_up = [], []
    for _ in range(products):
        demand, cost = p.numbers(0, 20, T), p.numbers(1, 5, T)
        x, stock = p.amounts(T, cost), p.amounts(T + 1, [p.number(0, 2)] * (T + 1))
        y, M = p.switches(T, p.numbers(10, 90, T)), p.big_m(max(sum(demand), 1.0))
        p.equals({stock[0]: 1.0}, 0.0)
        for t in range(T):
            p.equals({stock[t]: 1.0, x[t]: 1.0, stock[t + 1]: -1.0}, demand[t])
            p.at_most({x[t]: 1.0, y[t]: -M}, 0.0)
            if p.rng.random() < 0.3:  # the lot has a least size
                p.at_least({x[t]: 1.0, y[t]: -p.number(2, 8)}, 0.0)
        made.append(x)
        set_up.append(y)
    if p.rng.random() < 0.5:
        lost = p.number(0, 4)
        for t in range(T):
            row = {x[t]: 1.0 for x in made} | {y[t]: lost for y in set_up}
            p.at_most(row, capacity)


def _unit_commitment_milp_family(p: MilpFamilyBuilder) -> None:
    """Build a unit commitment of plants with minimum outputs, costs of starts, limits on ramps and minimum up times.

    Energy that the plants do not produce is bought.
    """
    T, plants = int(p.rng.integers(3, 9)), int(p.rng.integers(2, 5))
    most = [p.number(20, 60) for _ in range(plants)]
    demand = [p.number(0.3, 0.9) * sum(most) if not p.whole else p.number(10, 0.8 * sum(most)) for _ in range(T)]
    bought = p.amounts(T, p.numbers(60, 120, T))
    outputs = []
    for k in range(plants):
        out = p.amounts(T, [p.number(10, 50)] * T)
        on, starts = p.switches(T, [p.number(20, 200)] * T), p.switches(T, [p.number(0, 300)] * T)
        least, ramp, stays = 0.4 * most[k], 0.6 * most[k], int(p.rng.integers(1, 4))
        for t in range(T):
            p.at_most({out[t]: 1.0, on[t]: -most[k]}, 0.0)
            p.at_least({out[t]: 1.0, on[t]: -least}, 0.0)
            before = {on[t - 1]: 1.0} if t else {}
            p.at_most({on[t]: 1.0, starts[t]: -1.0} | dict.fromkeys(before, -1.0), 0.0)
            if t:
                p.at_most({out[t]: 1.0, out[t - 1]: -1.0, starts[t]: -most[k]}, ramp)
            for later in range(t + 1, min(t + stays, T)):
                p.at_most({starts[t]: 1.0, on[later]: -1.0}, 0.0)
        outputs.append(out)
    for t in range(T):
        p.equals({out[t]: 1.0 for out in outputs} | {bought[t]: 1.0}, demand[t])


def _facility_location_milp_family(p: MilpFamilyBuilder) -> None:
    """Build a facility location program, in which several sites may serve a customer.

    At each site, one module of capacity may be opened, or up to three. A closed site serves nobody: by a row for each
    pair of a site and a customer, or by a row with a big M for each site.
    """
    sites, customers = int(p.rng.integers(2, 7)), int(p.rng.integers(3, 10))
    modules = float(p.rng.choice([1.0, 1.0, 3.0]))
    demand, open_site = p.numbers(1, 9, customers), p.switches(sites, p.numbers(20, 90, sites), modules)
    capacity = sum(demand) * p.rng.uniform(0.4, 0.9)
    flows = [p.amounts(customers, p.numbers(1, 12, customers)) for _ in range(sites)]
    pairs, M = bool(p.rng.random() < 0.5), p.big_m(float(customers))
    for i in range(customers):
        p.equals({flows[j][i]: 1.0 for j in range(sites)}, 1.0)
    for j in range(sites):
        if pairs:
            for i in range(customers):
                p.at_most({flows[j][i]: 1.0, open_site[j]: -1.0}, 0.0)
        else:
            p.at_most(dict.fromkeys(flows[j], 1.0) | {open_site[j]: -M}, 0.0)
        served: dict[int, float] = dict(zip(flows[j], demand, strict=True))
        p.at_most(served | {open_site[j]: -capacity}, 0.0)


def _scheduling_milp_family(p: MilpFamilyBuilder) -> None:
    """Build a schedule of jobs on one machine. Rows with a big M decide which job of a pair is first."""
    jobs = int(p.rng.integers(2, 6))
    times, ready = [1.0 + t for t in p.numbers(0, 9, jobs)], p.numbers(0, 10, jobs)
    begin, late = p.amounts(jobs, p.numbers(1, 9, jobs)), p.amounts(jobs, p.numbers(0, 20, jobs))
    M = p.big_m(sum(times) + max(ready))
    for j in range(jobs):
        p.at_least({begin[j]: 1.0}, ready[j])
        p.at_most({begin[j]: 1.0, late[j]: -1.0}, p.number(0, 1.2 * sum(times)))
        for i in range(j):
            (first,) = p.switches(1, [0.0])
            p.at_most({begin[i]: 1.0, begin[j]: -1.0, first: M}, M - times[i])
            p.at_most({begin[j]: 1.0, begin[i]: -1.0, first: -M}, -times[j])


def _indicators_milp_family(p: MilpFamilyBuilder) -> None:
    """Build a program with rows that hold only if their switch is on, and a row on how many switches must be on."""
    n, rows, top = int(p.rng.integers(2, 7)), int(p.rng.integers(2, 8)), p.number(5, 20)
    x = p.amounts(n, p.numbers(-9, 9, n), top)
    on, count = p.switches(rows, p.numbers(-5, 5, rows)), p.switches(1, [p.number(-3, 3)], 7.0)
    for i in range(rows):
        row = {j: p.number(-6, 6) for j in x if p.rng.random() < 0.7}
        limit = p.number(0, 30)
        M = p.big_m(max(sum(abs(a) for a in row.values()) * top, 1.0))
        p.at_most(row | {on[i]: M}, limit + M)
    p.at_least(dict.fromkeys(on, 1.0), float(p.rng.integers(0, rows + 1)))
    p.at_most(dict.fromkeys(x, 1.0) | {count[0]: -top / 3}, top / 2)


MILP_FAMILIES: dict[str, Callable[[MilpFamilyBuilder], None]] = {
    "battery": _battery_milp_family,
    "lot sizing": _lot_sizing_milp_family,
    "unit commitment": _unit_commitment_milp_family,
    "facility location": _facility_location_milp_family,
    "scheduling": _scheduling_milp_family,
    "indicators": _indicators_milp_family,
}
"""The families, each with the function that writes a program. A program may have contradictory limits by chance."""


def _make_milp_family_infeasible(p: MilpFamilyBuilder) -> None:
    """Add a row that the upper bounds forbid, or a row that no integers satisfy."""
    whole = [j for j, integer in enumerate(p.integers) if integer]
    some = p.rng.choice(whole, min(len(whole), int(p.rng.integers(1, 4))), replace=False).tolist()
    if p.rng.random() < 0.5:
        p.at_least(dict.fromkeys(some, 1.0), sum(p.upper[j] for j in some) + 1.0)
    else:  # an even sum is 1, which is infeasible for integers but not for their relaxation
        p.equals(dict.fromkeys(some, 2.0), 1.0)


def _make_milp_family_unbounded(p: MilpFamilyBuilder) -> None:
    """Add a product with unlimited earnings, or unlimited purchases that are sold at a higher price."""
    if p.rng.random() < 0.5:
        p.amounts(1, [-1.0 - p.number(0, 5)])
        return
    price = p.number(1, 9)
    buy, sell = p.amounts(2, [price, -price - 1.0])
    p.equals({buy: 1.0, sell: -1.0}, 0.0)


def draw_milp_family(seed: int, number: int) -> MilpFamilyCase:
    """Draw one program. The families take turns.

    Args:
        seed: the seed of the run.
        number: the number of the program within the run.
    """
    family = list(MILP_FAMILIES)[number % len(MILP_FAMILIES)]
    rng = np.random.default_rng([seed, number])
    unit = float(10.0 ** rng.integers(-3, 4)) if rng.random() < 0.3 else 1.0
    builder = MilpFamilyBuilder(rng, whole=bool(rng.random() < 0.4), unit=unit)
    MILP_FAMILIES[family](builder)
    kind = rng.random()
    if kind < INFEASIBLE:
        _make_milp_family_infeasible(builder)
    elif kind < INFEASIBLE + UNBOUNDED:
        _make_milp_family_unbounded(builder)
    return builder.build(family)
