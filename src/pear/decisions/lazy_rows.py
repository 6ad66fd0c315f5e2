"""``lazy_oracle``: decisions of a problem with too many constraint rows to list them all.

Such rows are lazy: a row is added to the problem only when a decision violates it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pear.decisions.solve import solve
from pear.errors import ProblemError, SolveError
from pear.problem import Oracle, Problem
from pear.problem.derived_problems import problem_with_rows

Array = NDArray[np.float64]
Separate = Callable[[Array], tuple[Any, Any] | None]
"""A function from a decision z (n,) to violated rows and their right-hand sides, with ``rows @ z > sides``. The shapes
are (r, n) and (r,) for r rows, or (n,) and () for one row. If z violates no row, the result is None."""

_MOST_ROUNDS = 1_000  # the most rounds of solving and calling ``separate``


class LazyRows:
    """A function from costs to decisions of a problem with lazy rows.

    Lazy rows are added only when a decision violates them. A call solves the problem, finds violated rows by
    ``separate``, adds them, and solves again until no row is violated. The added rows stay for all later samples.

    Args:
        problem: the problem without the lazy rows, the same for all samples.
        separate: finds rows that a decision violates, as for ``lazy_oracle``.

    Attributes:
        rows: (r, n) the rows that were added so far.
        sides: (r,) their right-hand sides.
    """

    def __init__(self, problem: Problem, separate: Separate) -> None:
        self.problem, self.separate = problem, separate
        self.rows, self.sides = np.zeros((0, problem.n)), np.zeros(0)
        self._lock = Lock()

    def __call__(self, costs: Array) -> Array:
        """Return decisions (B, n) for costs (B, n), which violate no row.

        Raises:
            ProblemError: ``separate`` returns arrays of a wrong shape, numbers that are not finite, a row that was
                added before, or only rows that the decision satisfies; or it still finds violated rows after 1,000
                rounds.
            SolveError: a sample has no decision.
        """
        decisions, todo = np.zeros_like(costs), np.arange(len(costs))
        with self._lock:
            for _ in range(_MOST_ROUNDS):
                decisions[todo] = self._solve(costs[todo], todo.tolist())
                known = {*self._lazy_row_keys(self.rows, self.sides)}
                found = [self._find_violated(decisions[i], known) for i in todo]
                for rows, sides in found:
                    self._add(rows, sides)
                todo = todo[[len(sides) > 0 for _, sides in found]]
                if not len(todo):
                    return decisions
        raise ProblemError(
            f"separate still finds violated rows after {_MOST_ROUNDS:,} rounds, and {len(self.rows):,} rows were added"
        )

    def _solve(self, costs: Array, samples: list[int]) -> Array:
        """Return decisions (k, n) for costs (k, n), with the rows added so far.

        ``samples`` are the numbers of these k samples, which error messages name.
        """
        problem = problem_with_rows(self.problem, self.rows, self.sides) if len(self.rows) else self.problem
        try:
            return solve(problem, torch.from_numpy(costs)).x.numpy()
        except SolveError as error:
            raise error.at(samples) from None

    def _find_violated(self, z: Array, known: set[tuple[float, ...]]) -> tuple[Array, Array]:
        """Return the rows (r, n) and right-hand sides (r,) that a decision violates.

        Args:
            z: (n,) the decision.
            known: the keys (``_lazy_row_keys``) of the lazy rows that were in the problem when z was computed.

        Raises:
            ProblemError: the rows have a wrong shape or are not finite, z satisfies all of them, or the key of a row is
                in ``known``.
        """
        found, n = self.separate(z.copy()), self.problem.n
        if found is None:
            return np.zeros((0, n)), np.zeros(0)
        rows, sides = (np.atleast_1d(np.asarray(part, dtype=np.float64)) for part in found)
        rows = np.atleast_2d(rows) if rows.size else np.zeros((0, n))
        if rows.shape != (len(sides), n) or not (np.isfinite(rows).all() and np.isfinite(sides).all()):
            raise ProblemError(
                f"separate must return finite rows (r, {n}) and right-hand sides (r,), or None; got shapes "
                f"{rows.shape} and {sides.shape}"
            )
        excess = rows @ z - sides
        if len(rows) and not (excess > 0).any():
            raise ProblemError("separate returned rows that the decision satisfies; return None where none is violated")
        again = [key in known for key in self._lazy_row_keys(rows, sides)]
        if any(again):
            raise ProblemError(
                f"separate finds a row violated by {excess[again].max():.1e} that was added before; let it accept "
                "violations of the size of rounding"
            )
        return rows, sides

    def _add(self, rows: Array, sides: Array) -> None:
        """Add rows (r, n) with right-hand sides (r,), except those that were added before."""
        known = {*self._lazy_row_keys(self.rows, self.sides)}
        new = [i for i, key in enumerate(self._lazy_row_keys(rows, sides)) if key not in known]
        self.rows, self.sides = np.vstack([self.rows, rows[new]]), np.append(self.sides, sides[new])

    @staticmethod
    def _lazy_row_keys(rows: Array, sides: Array) -> list[tuple[float, ...]]:
        """Return the numbers of each row (r, n) and its right-hand side (r,) as a tuple, by which rows are compared."""
        return [(*row, side) for row, side in zip(rows.tolist(), sides.tolist(), strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())


def lazy_oracle(problem: Problem, separate: Separate) -> Oracle:
    """Make an ``Oracle`` for a problem with too many rows to list, such as the subtour constraints of a round trip.

    These rows are lazy: a row is added only when a decision violates it. The problem is first solved without the lazy
    rows. The function ``separate`` finds rows that the decision violates. They are added, and the problem is solved
    again, until no row is violated. Added rows stay for all samples. A decision is optimal under the added rows, and
    therefore under all rows if ``separate`` misses no violated row. PEAR trains on the problem without the lazy rows.

    Args:
        problem: the problem without the lazy rows, the same for all samples; it may have integers.
        separate: maps a decision z (n,) to violated rows and their right-hand sides, with ``rows @ z > sides``. The
            shapes are (r, n) and (r,) for r rows, or (n,) and () for one row. If z violates no row, it returns None.

    Returns:
        The oracle. Its ``function.rows`` and ``function.sides`` are the rows added so far and their right-hand sides.

    Raises:
        ProblemError: ``problem`` is not a ``Problem`` with a program, or has fields per sample; or ``separate`` is not
            a function.

    Example:
        >>> import numpy as np, pear
        >>> def at_most_one(z):  # at most one of two neighbouring shifts is chosen
        ...     both = np.flatnonzero(z[:-1] + z[1:] > 1.5)
        ...     return None if not len(both) else (np.eye(4)[both] + np.eye(4)[both + 1], np.ones(len(both)))
        >>> shifts = pear.lazy_oracle(pear.Problem(lb=0, ub=1, n=4, integer=True, sense="max"), at_most_one)
        >>> pear.solve(shifts, [[1.0, 3.0, 1.0, 1.0]]).x
        tensor([[0., 1., 0., 1.]], dtype=torch.float64)
    """
    if not isinstance(problem, Problem) or not problem.has_program or problem.batch is not None:
        raise ProblemError(
            f"lazy_oracle takes a pear.Problem whose fields all samples share, to which rows are added; got {problem!r}"
        )
    if not callable(separate):
        raise ProblemError(f"separate must be a function from a decision to rows that it violates; got {separate!r}")
    return Oracle(LazyRows(problem, separate), sense=problem.sense, batched=True, relaxation=problem)
