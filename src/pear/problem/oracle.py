"""``Oracle``: a decision problem that is given by a function from costs to decisions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Never

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import field_checks
from pear.problem.html_tables import html_table
from pear.problem.model import Model, model_input_count, problem_of_model
from pear.problem.oracle_function import CheckedDecision, OracleFunction, TensorFunction
from pear.problem.problem import Problem
from pear.problem.problem_fields import FIELDS
from pear.problem.sample_index import sample_index
from pear.setting_checks import check_count_setting

DECISIONS_ALONE = ("spo+", "pfyl", "dbb", "mse")
"""Well-known methods of the table ``pear.losses.METHODS`` that need only decisions, and thus no relaxation. What any
method needs is in the attribute ``requires`` of its row."""


class Oracle(Problem):
    """A decision problem that is given by a function from costs to decisions, instead of constraints.

    The function may be a heuristic, a constraint solver, a simulator or a service. ``pear.solve``, ``regret``, ``fit``,
    ``tune``, ``DecisionRegressor``, ``diagnose`` and ``walk_forward`` accept an oracle in place of a ``Problem``. A
    decision z costs ``cᵀz``. Methods that need only decisions (SPO+, PFYL, DBB, the squared error) train with the
    function. The method PEAR needs a program: it trains on ``relaxation``, while the function decides.

    The library cannot verify that a decision of the function is optimal, and gives it the status ``CLAIMED``, not
    ``SOLVED``. The regret of a sample is negative if a heuristic decides better under the forecast than under the true
    costs.

    Args:
        decide: a function from the costs of one sample, an array (n,), to its decision (n,), or from the costs (B, n)
            of a batch to decisions (B, n). The function may return tensors. If samples differ in more than their costs,
            the function may have an argument ``key``, which gets the id of the sample, or ``keys``, which gets the ids
            of the batch. Unknown ids are None.
        n: the number of variables; by default that of the relaxation.
        sense: "min" or "max".
        batched: True if ``decide`` takes a batch, False if it takes one sample, None to find out at the first call.
        processes: the number of processes of this machine that share the samples, for a slow function. Needs joblib.
        check: a function of a decision (n,), which returns True or None if the decision is right, and False or a
            sentence about what is wrong otherwise. Shape and finite numbers are always checked.
        relaxation: a ``Problem`` that contains all decisions, with the same variables, costs and sense, such as the
            degree constraints of a tour; or a ``Model`` that takes the n costs as predicted values. If the relaxation
            has a Q, a decision costs ``½ zᵀQz + cᵀz``.
        cache: True to store decisions, so that the function is called once for equal costs. Pass False for a function
            that answers at random.

    Attributes:
        function: ``decide`` as given.
        relaxation: as given, or None.

    Raises:
        ProblemError: an argument is wrong, or the relaxation does not fit.

    Example:
        >>> import numpy as np, pear
        >>> cheapest = pear.Oracle(lambda cost: cost == cost.min(), n=3)
        >>> pear.solve(cheapest, [[2.0, 1.0, 3.0]])
        Solution(1 sample of 3 variables: 1 CLAIMED; mean value 1)
        >>> pear.regret(cheapest, [[2.0, 1.0, 3.0]], [[1.0, 4.0, 3.0]])
        tensor([3.], dtype=torch.float64)
    """

    has_program = False
    relaxation: Problem | Model | None
    _calls: OracleFunction
    _keys: tuple[Hashable, ...] | None

    def __init__(
        self,
        decide: Callable[..., Any],
        n: int | None = None,
        sense: str = "min",
        *,
        batched: bool | None = None,
        processes: int = 1,
        check: Callable[[Any], Any] | None = None,
        relaxation: Problem | Model | None = None,
        cache: bool = True,
    ) -> None:
        field_checks.check_sense(sense)
        for name, function in (("decide", decide), ("check", check)):
            if not callable(function) and (function is not None or name == "decide"):
                raise ProblemError(f"{name} must be a function; got {function!r}")
        processes = check_count_setting("processes", processes)
        size = _read_oracle_size(n, sense, relaxation)
        inner = relaxation if isinstance(relaxation, Problem) else None
        self.__dict__.update(
            dict.fromkeys(FIELDS),
            Q=None if inner is None else inner.Q,
            phi=None if inner is None else inner.phi,
            sense=sense,
            integer=None,
            n=size,
            batch=None if inner is None else inner.batch,
            dtype=torch.float64,
            device=torch.device("cpu") if inner is None else inner.device,
            is_sparse=inner is not None and inner.is_sparse,
            relaxation=relaxation,
            _plans={},
            _calls=OracleFunction(decide, size, batched, processes, check, cache),
            _keys=None,
        )

    @property
    def function(self) -> Callable[..., Any]:
        """The function from costs to decisions, as the user passed it."""
        inner = self._calls.function
        return inner.decide if isinstance(inner, TensorFunction) else inner

    @property
    def takes_keys(self) -> bool:
        """True if the function has an argument for sample ids, so that samples may differ in more than their costs."""
        return self._calls.takes_keys

    def decisions(self, cost: Tensor) -> list[CheckedDecision | None]:
        """Return the decisions of the function for costs (B, n), after the check of each decision.

        Returns:
            B decisions; None for a sample whose costs are not finite.

        Raises:
            ProblemError: the costs have the wrong shape, the oracle is for another number of samples, or the function
                does not return a decision of the right shape for each cost.
        """
        field_checks.check_cost_and_fields(cost, self.n, self.batch, {})
        costs = cost.detach().double().cpu().numpy()
        if self._keys is not None and len(self._keys) != len(costs):
            raise ProblemError(f"the oracle was given the ids of {len(self._keys)} samples, and {len(costs)} costs")
        usable = torch.isfinite(cost).all(1).nonzero()[:, 0].tolist()
        keys = None if self._keys is None else [self._keys[i] for i in usable]
        found: list[CheckedDecision | None] = [None] * len(costs)
        for i, one in zip(usable, self._calls.decide(costs[usable], usable, keys), strict=True):
            found[i] = one
        return found

    def is_new(self) -> bool:
        """Return True at the first call of this method only, so that the caller can check an oracle once.

        For an oracle from ``make_oracle``, every call returns False.
        """
        new, self._calls.is_new = self._calls.is_new, False
        return new

    def of_samples(self, keys: Sequence[Hashable]) -> Oracle:
        """Return the oracle of the samples with these ids. A function that takes ids gets them at every call.

        If the relaxation has fields per sample, the ids must be row numbers.
        """
        if self.batch is not None:
            return self[keys]
        return self._with(_keys=tuple(keys)) if self.takes_keys else self  # type: ignore[return-value]

    def __getitem__(self, index: Any) -> Oracle:
        """Return the oracle of the samples at ``index``.

        A function that takes ids gets the row numbers of these samples. If the relaxation has fields per sample, a
        selection from selected samples keeps the row numbers of the first selection. If the function takes no ids and
        the relaxation has no fields per sample, the oracle itself is returned.
        """
        if self.batch is None:
            return self.of_samples(_row_numbers(index)) if self.takes_keys else self
        numbers = torch.arange(self.batch)[sample_index(index, self.batch, torch.device("cpu"))].tolist()
        keys = tuple(numbers if self._keys is None else (self._keys[i] for i in numbers))
        assert isinstance(self.relaxation, Problem)
        inner = self.relaxation[index]
        return self._with(relaxation=inner, Q=inner.Q, batch=inner.batch, _keys=keys)  # type: ignore[return-value]

    def relaxed(self) -> Problem:
        """Return the relaxation with every variable continuous.

        Raises:
            ProblemError: there is no relaxation, or it is a ``Model``, which has variables of its own.
        """
        if isinstance(self.relaxation, Model):
            raise ProblemError(
                "the relaxation is a Model with variables of its own, and this needs one with the variables of the "
                "oracle; pass a Problem as relaxation=, or train by PEARLoss"
            )
        if self.relaxation is None:
            raise ProblemError(_oracle_without_program("this"))
        return self.relaxation.relaxed()

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> Oracle:
        """Return the same oracle with its relaxation on another device. The function always gets NumPy arrays."""
        moved = super().to(device, dtype)
        inner = self.relaxation
        if isinstance(inner, Model):
            inner = replace(inner, problem=inner.problem.to(moved.device))
        elif inner is not None:
            inner = inner.to(moved.device)
        return moved._with(relaxation=inner)  # type: ignore[return-value]

    def canonical(self, *_: Any, **__: Any) -> Never:
        """Raise ProblemError, because an oracle has no program."""
        raise ProblemError(_oracle_without_program("this"))

    checked = canonical

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        inner = "" if self.relaxation is None else f", relaxation={self.relaxation!r}"
        return f"Oracle({self.sense}, n={self.n}, {name}{inner})"

    def _repr_html_(self) -> str:
        facts = {"sense": self.sense, "variables": self.n, "relaxation": self.relaxation}
        return html_table("Oracle", facts, "Whether a decision is the best one is the function's word.")

    def __deepcopy__(self, _: Any) -> Oracle:
        """Return the oracle itself, which cannot be changed, and whose function can often not be copied."""
        return self


def make_oracle(problem: Problem | Model, decide: Callable[..., Tensor]) -> Problem | Model:
    """Return a problem or model whose decisions are made by a function of tensors, instead of a solver.

    Args:
        problem: the problem or model. Its problem becomes the relaxation of the oracle. If its problem is an oracle
            already, the new oracle has the same relaxation.
        decide: a function from costs (B, n) to decisions (B, n), which may also have an argument ``keys``.
    """
    plain = problem_of_model(problem)
    inner = plain.relaxation if isinstance(plain, Oracle) else plain
    oracle = Oracle(TensorFunction(decide), plain.n, plain.sense, batched=True, relaxation=inner)
    return replace(problem, problem=oracle) if isinstance(problem, Model) else oracle


def program_of_oracle(problem: Problem | Model, asks: str) -> Problem | Model:
    """Return a problem or model with the relaxation in place of an oracle, for code that needs derivatives.

    Args:
        problem: a problem or model. If it contains no oracle, it is returned unchanged.
        asks: what needs derivatives, as the first words of the error message.

    Raises:
        ProblemError: the oracle has no relaxation, or the relaxation does not fit the model.
    """
    plain = problem_of_model(problem)
    if plain.has_program:
        return problem
    assert isinstance(plain, Oracle)
    inner = plain.relaxation
    if inner is None:
        raise ProblemError(_oracle_without_program(asks))
    if not isinstance(problem, Model):
        return inner
    if isinstance(inner, Problem):
        return replace(problem, problem=inner)
    if problem.cost_map is not None:
        raise ProblemError(
            "a Model with a cost map is decided by an oracle whose relaxation is a Model as well; pass a Problem with "
            "the variables of the oracle as relaxation="
        )
    return inner


def same_oracle(one: Problem | Model, other: Problem | Model) -> bool:
    """Return True if two problems are oracles with the same function, or if neither of them is an oracle."""
    first, second = problem_of_model(one), problem_of_model(other)
    if isinstance(first, Oracle) and isinstance(second, Oracle):
        return bool(first.function == second.function)
    return first.has_program and second.has_program


def _row_numbers(index: Any) -> list[int]:
    """Return the row numbers that an int, a list, a tensor, a bool mask or a slice with an end selects.

    Raises:
        ProblemError: the slice has no end, which only the number of samples could give it.
    """
    if isinstance(index, slice):
        ends = (index.start or 0, index.stop, index.step or 1)
        if ends[1] is None or min(*ends) < 0:
            raise ProblemError(f"an oracle does not know how many samples there are; got {index}: pass row numbers")
        return list(range(*ends))
    rows = torch.as_tensor(index)
    return (rows.nonzero() if rows.dtype == torch.bool else rows).reshape(-1).tolist()


def _oracle_without_program(asks: str) -> str:
    """Return the message that ``asks`` needs a program, which an oracle without a relaxation does not have."""
    return (
        f"{asks} needs a program, and an Oracle is a function without one; pass relaxation=, a Problem that contains "
        f"its decisions, to pear.Oracle, or train by a method that needs decisions alone: {', '.join(DECISIONS_ALONE)}"
    )


def _read_oracle_size(n: int | None, sense: str, relaxation: Any) -> int:
    """Return the number of variables of an oracle, after a check of its relaxation.

    Args:
        n: the number that the user passed, or None.
        sense: the sense of the oracle.
        relaxation: the relaxation of the oracle, or None.

    Raises:
        ProblemError: n is missing or wrong, or the relaxation does not fit.
    """
    n = None if n is None else check_count_setting("n", n)
    if relaxation is None:
        if n is None:
            raise ProblemError("n, the number of variables, is needed where no relaxation tells it; pass n=…")
        return n
    plain, count = problem_of_model(relaxation), model_input_count(relaxation)
    if not plain.has_program:
        raise ProblemError("the relaxation of an Oracle must be a Problem or a Model with a program; got an Oracle")
    if isinstance(relaxation, Model) and (
        relaxation.constraint_map is not None
        or relaxation.known_map is not None
        or plain.is_curved
        or plain.batch is not None
        or (relaxation.cost_map is not None and relaxation.cost_map.batch is not None)
    ):
        raise ProblemError(
            "a Model as relaxation must have a linear objective, the same for all samples, and predict costs alone; "
            "pass its problem where the variables are those of the oracle"
        )
    if n is not None and n != count:
        raise ProblemError(f"the relaxation takes {count} costs, and n is {n}; give both the same variables")
    if plain.sense != sense:
        raise ProblemError(f"the relaxation has sense={plain.sense!r}, and the oracle {sense!r}; make them equal")
    return count
