"""Calls of the function behind an ``Oracle``: one sample or a batch at a time, in processes, with a memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.optional_packages import import_optional

Array = NDArray[np.float64]
Function = Callable[..., Any]
Keys = Sequence[Hashable]

_MEMORY_BYTES = 2**26
_REPEATS = 3  # of a sample in the batch that tells a function of a batch from one of a sample; [:2] takes two rows
_ENTRY_BYTES = 200  # of a digest, an array's header and the entry of a dict, beside the numbers
_SHAPE_ERRORS = (LookupError, ValueError, TypeError, RuntimeError)
"""What a function of a batch raises where it gets a single sample: NumPy and torch have no error of their own."""


class CheckedDecision(NamedTuple):
    """What the function returned for one sample.

    Attributes:
        z: (n,) the decision.
        complaint: what is wrong with it, in words; "" where nothing is.
    """

    z: Array
    complaint: str


class DecisionMemory:
    """Decisions by the digest of their cost. Costs that came twice are kept before those that came once.

    The costs of the truth come again and again, and those of a forecaster in training never do.
    """

    def __init__(self) -> None:
        self._once: dict[bytes, CheckedDecision] = {}
        self._again: dict[bytes, CheckedDecision] = {}
        self._lock = Lock()

    def get(self, mark: bytes) -> CheckedDecision | None:
        """Return the decision that was stored under a digest, or None."""
        with self._lock:
            if mark in self._once:
                self._again[mark] = self._once.pop(mark)
            return self._again.get(mark)

    def put(self, mark: bytes, decision: CheckedDecision) -> None:
        """Store a decision; the oldest ones are forgotten where memory is full."""
        with self._lock:
            self._once[mark] = decision
            most = max(1, _MEMORY_BYTES // (8 * len(decision.z) + _ENTRY_BYTES))
            while len(self._once) + len(self._again) > most:
                full = self._once if self._once else self._again
                del full[next(iter(full))]

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as an empty memory."""
        return DecisionMemory, ()


class TensorFunction:
    """A function of tensors, as losses take it, in the form that an ``Oracle`` takes.

    Args:
        decide: maps a tensor of costs (B, n), and ``keys`` where it takes them, to decisions (B, n).
    """

    def __init__(self, decide: Callable[..., Tensor]) -> None:
        self.decide = decide

    def __call__(self, costs: Array, **keys: Any) -> Tensor:
        """Return the decisions (B, n) for costs (B, n)."""
        return self.decide(torch.from_numpy(costs), **keys)


class OracleFunction:
    """The user's function from costs to decisions, with how it is called and how its results are checked.

    Args:
        function: maps costs (n,) to a decision (n,), or (B, n) to (B, n). It may take the ids of the samples, as
            ``key`` of one sample or ``keys`` of a batch.
        n: the number of variables.
        batched: whether it takes a batch; None lets the first call find out.
        processes: the number of processes that share the samples.
        check: a function of a decision (n,): returns True or None where it is right, False or a sentence where not.
        cache: whether decisions are stored by their costs.

    Attributes:
        memory: the stored decisions.
        is_new: whether no decision has been compared with the relaxation yet.
    """

    def __init__(
        self,
        function: Function,
        n: int,
        batched: bool | None,
        processes: int,
        check: Callable[[Array], Any] | None,
        cache: bool,
    ) -> None:
        names = function_argument_names(function.decide if isinstance(function, TensorFunction) else function)
        self.function, self.n, self.check = function, n, check
        self.takes_keys = "keys" in names or "key" in names
        self.batched = batched if batched is not None or not self.takes_keys else "keys" in names
        self.processes, self.cache = processes, cache
        self.memory = DecisionMemory()
        self.is_new = not isinstance(function, TensorFunction)

    def decide(self, costs: Array, positions: list[int], keys: Keys | None = None) -> list[CheckedDecision]:
        """Decide for finite costs (B, n); equal costs are decided once.

        Args:
            costs: (B, n) in float64.
            positions: B positions of the samples, which errors name.
            keys: B ids, for a function that takes them.
        """
        own = keys if keys is not None and self.takes_keys else [None] * len(costs)
        marks = [_digest(cost, key) for cost, key in zip(costs, own, strict=True)]
        found = {mark: known for mark in marks if (known := self.memory.get(mark)) is not None}
        new = {mark: i for i, mark in enumerate(marks) if mark not in found}
        if new:
            samples = list(new.values())
            rows = self._call(costs[samples], [own[i] for i in samples], [positions[i] for i in samples])
            for mark, z in zip(new, rows, strict=True):
                found[mark] = CheckedDecision(z, self._complain(z))
                if self.cache:
                    self.memory.put(mark, found[mark])
        return [found[mark] for mark in marks]

    def _call(self, costs: Array, keys: Keys, samples: list[int]) -> list[Array]:
        """Call the function for costs (B, n) of samples with these ids, None where unknown, and these positions."""
        first = [] if self.batched is not None else [self._find_kind(costs[0], samples[0])]
        rest = np.arange(len(first), len(costs))
        if not len(rest):
            return first
        call, batched = _make_caller(self.function, bool(self.batched)), bool(self.batched)
        parts = np.array_split(rest, min(self.processes, len(rest)))
        work = [
            (costs[part], [keys[i] for i in part] if self.takes_keys else None, [samples[i] for i in part])
            for part in parts
        ]
        results = _run_in_processes(call, work) if len(work) > 1 else [call(*one) for one in work]
        for returned, (some, _, positions) in zip(results, work, strict=True):
            if batched:
                first.extend(as_decisions(returned, some.shape, positions))
            else:
                first.extend(as_decisions(z, (self.n,), [i]) for z, i in zip(returned, positions, strict=True))
        return first

    def _find_kind(self, cost: Array, sample: int) -> Array:
        """Decide one sample and find out whether the function takes one sample or a batch.

        The sample is passed alone first. Where that fails, or gives another shape, it is passed as a batch that repeats
        it; the error of the first call is raised where that fails as well, or gives different decisions.
        """
        try:
            z = as_decisions(self.function(cost.copy()), (self.n,), [sample])
        except _SHAPE_ERRORS as error:
            try:
                rows = as_decisions(self.function(np.tile(cost, (_REPEATS, 1))), (_REPEATS, self.n), [sample])
            except _SHAPE_ERRORS:
                raise error from None
            if (rows != rows[0]).any():
                raise
            self.batched = True
            return rows[0]
        self.batched = False
        return z

    def _complain(self, z: Array) -> str:
        """Return what is wrong with a decision (n,), in words; "" where nothing is."""
        if not np.isfinite(z).all():
            return f"{int((~np.isfinite(z)).sum())} of {len(z)} numbers are not finite"
        said = None if self.check is None else self.check(z.copy())
        if isinstance(said, str):
            return said
        if said is not None and not isinstance(said, (bool, np.bool_)):
            raise ProblemError(
                "check must return True or None for a right decision, and False or a sentence for a wrong one; got "
                f"{said!r}"
            )
        return "the check refuses it" if said is not None and not said else ""


def as_decisions(returned: Any, shape: tuple[int, ...], samples: list[int]) -> Array:
    """Return what a function has returned as a float64 array of this shape.

    Raises:
        ProblemError: it is not an array of numbers of this shape; the message names the samples.
    """
    value = returned.detach().cpu().numpy() if isinstance(returned, Tensor) else returned
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full((), np.nan)
    if found.shape != shape:
        came = "None" if returned is None else f"{type(returned).__name__} of shape {np.shape(found)}"
        where = f"sample {samples[0]}" if len(samples) == 1 else f"the batch of samples {samples[0]} to {samples[-1]}"
        raise ProblemError(
            f"the oracle must return {shape} numbers, a decision for each cost; for {where} it returned {came}"
        )
    return found


def _make_caller(function: Function, batched: bool) -> Callable[..., Any]:
    """Make a function that calls the user's for costs (B, n), their ids or None, and their positions.

    It is a nested function, which travels to other processes by value: these need not import this package, nor torch.
    """

    def call(costs: Any, keys: Any, positions: list[int]) -> Any:
        import sys

        before = sys.exception()  # one that the caller is handling
        found: list[Any] = []
        parts = [slice(None)] if batched else list(range(len(costs)))
        for part in parts:
            named = {} if keys is None else {"keys": None if None in keys else keys} if batched else {"key": keys[part]}
            try:
                found.append(function(costs[part].copy(), **named))
            finally:
                error = sys.exception()
                if error is not None and error is not before:
                    some = f"{len(positions)} samples" if batched else f"sample {positions[part]}"
                    error.add_note(f"raised by the function of an Oracle, for {some}")
        return found[0] if batched else found

    return call


def _run_in_processes(call: Callable[..., Any], work: list[tuple[Any, ...]]) -> list[Any]:
    """Run one part of the work in each process; joblib keeps the processes for the next call."""
    joblib = import_optional("joblib", "sklearn", "processes= of an Oracle")
    results: list[Any] = joblib.Parallel(n_jobs=len(work))(joblib.delayed(call)(*one) for one in work)
    return results


def function_argument_names(function: Function) -> set[str]:
    """Return the names of the arguments of a function, or of the ``forward`` of a module.

    There are none where it has no signature, as functions written in C.
    """
    function = function.forward if isinstance(function, nn.Module) else function
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _digest(cost: Array, key: Hashable) -> bytes:
    """Return a digest of a cost (n,) and the id of its sample; −0 and 0 are the same cost."""
    return blake2b((cost + 0.0).tobytes() + repr(key).encode(), digest_size=16).digest()
