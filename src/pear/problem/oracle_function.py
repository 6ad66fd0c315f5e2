"""The function of an ``Oracle``: how it is called, for a sample or a batch, and how its decisions are stored."""

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
_REPEATS = 3  # rows of the batch that tests whether a function takes batches; a function that reads x[:2] needs two
_ENTRY_BYTES = 200  # size of a digest, an array's header and a dictionary entry, without the numbers
_SHAPE_ERRORS = (LookupError, ValueError, TypeError, RuntimeError)
"""The errors that a function of a batch may raise for a single sample. NumPy and torch have no more specific error."""


class CheckedDecision(NamedTuple):
    """The decision that an oracle's function returned for one sample, and the result of its check.

    Attributes:
        z: (n,) the decision.
        complaint: what is wrong with the decision, in words; "" if nothing is.
    """

    z: Array
    complaint: str


class OracleFunctionMemory:
    """A store of decisions, each under a digest of the costs and the id of the sample.

    A full store first forgets decisions that were never looked up again, the oldest first, and then the others. It
    therefore keeps the decisions under true costs, which training looks up in every epoch. Decisions under forecasts
    are forgotten, because forecasts change from epoch to epoch.
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
        """Store a decision under a digest, and forget others if the store is full."""
        with self._lock:
            self._once[mark] = decision
            most = max(1, _MEMORY_BYTES // (8 * len(decision.z) + _ENTRY_BYTES))
            while len(self._once) + len(self._again) > most:
                full = self._once if self._once else self._again
                del full[next(iter(full))]

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs to make an empty store, so that stored decisions are not pickled."""
        return OracleFunctionMemory, ()


class TensorFunction:
    """A function of tensors, wrapped as the function of NumPy arrays that an ``Oracle`` calls.

    Args:
        decide: a function from a tensor of costs (B, n) to decisions (B, n), which may also have an argument ``keys``.
    """

    def __init__(self, decide: Callable[..., Tensor]) -> None:
        self.decide = decide

    def __call__(self, costs: Array, **keys: Any) -> Tensor:
        """Return the decisions (B, n) for costs (B, n)."""
        return self.decide(torch.from_numpy(costs), **keys)


class OracleFunction:
    """The user's function from costs to decisions, with what is needed to call it and to check its results.

    Args:
        function: a function from costs (n,) to a decision (n,), or from costs (B, n) to decisions (B, n). It may have
            an argument ``key`` for the id of the sample, or ``keys`` for the ids of the batch.
        n: the number of variables.
        batched: True if the function takes a batch, False if it takes one sample, None to find out at the first call.
        processes: the number of processes that share the samples.
        check: a function of a decision (n,), which returns True or None if the decision is right, and False or a
            sentence about what is wrong otherwise; or None.
        cache: True to store decisions, so that the function is called once for equal costs.

    Attributes:
        memory: the stored decisions.
        is_new: True until ``Oracle.is_new`` is called for the first time. Always False for a ``TensorFunction``.
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
        self.memory = OracleFunctionMemory()
        self.is_new = not isinstance(function, TensorFunction)

    def decide(self, costs: Array, positions: list[int], keys: Keys | None = None) -> list[CheckedDecision]:
        """Return the decisions of B samples. The function is called once for samples with equal costs and ids.

        Args:
            costs: (B, n) finite, in float64.
            positions: the positions of the B samples in the user's batch, for error messages.
            keys: the ids of the B samples, for a function that takes ids; None if they are unknown.
        """
        own = keys if keys is not None and self.takes_keys else [None] * len(costs)
        marks = [_digest_oracle_function_input(cost, key) for cost, key in zip(costs, own, strict=True)]
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
        """Call the function for B samples, in several processes if the user asked for them.

        Args:
            costs: (B, n).
            keys: the ids of the samples; None for an unknown id.
            samples: the positions of the samples in the user's batch, for error messages.

        Returns:
            B decisions (n,).
        """
        first = [] if self.batched is not None else [self._find_kind(costs[0], samples[0])]
        rest = np.arange(len(first), len(costs))
        if not len(rest):
            return first
        call, batched = _make_oracle_function_caller(self.function, bool(self.batched)), bool(self.batched)
        parts = np.array_split(rest, min(self.processes, len(rest)))
        work = [
            (costs[part], [keys[i] for i in part] if self.takes_keys else None, [samples[i] for i in part])
            for part in parts
        ]
        results = _run_oracle_function_in_processes(call, work) if len(work) > 1 else [call(*one) for one in work]
        for returned, (some, _, positions) in zip(results, work, strict=True):
            if batched:
                first.extend(read_oracle_function_output(returned, some.shape, positions))
            else:
                first.extend(
                    read_oracle_function_output(z, (self.n,), [i]) for z, i in zip(returned, positions, strict=True)
                )
        return first

    def _find_kind(self, cost: Array, sample: int) -> Array:
        """Return the decision (n,) for costs (n,), and set ``batched`` by a trial of the function.

        The function is called with the costs (n,). If this call fails, or does not return (n,) numbers, the function is
        called with a batch of three copies of the costs. If the second call fails as well, or returns different
        decisions for the copies, the error of the first call is raised.
        """
        try:
            z = read_oracle_function_output(self.function(cost.copy()), (self.n,), [sample])
        except _SHAPE_ERRORS as error:
            try:
                rows = read_oracle_function_output(
                    self.function(np.tile(cost, (_REPEATS, 1))), (_REPEATS, self.n), [sample]
                )
            except _SHAPE_ERRORS:
                raise error from None
            if (rows != rows[0]).any():
                raise
            self.batched = True
            return rows[0]
        self.batched = False
        return z

    def _complain(self, z: Array) -> str:
        """Return a text that says what is wrong with a decision (n,); "" if nothing is."""
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


def read_oracle_function_output(returned: Any, shape: tuple[int, ...], samples: list[int]) -> Array:
    """Convert what the function of an oracle returned to a float64 array.

    Args:
        returned: what the function returned.
        shape: the expected shape, (n,) or (B, n).
        samples: the positions of the samples in the user's batch, for the error message.

    Raises:
        ProblemError: the value is not an array of numbers of this shape.
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


def _make_oracle_function_caller(function: Function, batched: bool) -> Callable[..., Any]:
    """Return a function that calls the user's function for costs (B, n), the ids of the samples, and their positions.

    The result is a nested function, which is pickled by value. Other processes therefore need not import PEAR or torch.

    Args:
        function: the user's function.
        batched: True if the user's function takes a batch, False if it takes one sample.
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


def _run_oracle_function_in_processes(call: Callable[..., Any], work: list[tuple[Any, ...]]) -> list[Any]:
    """Return the result of ``call`` for each tuple of arguments in ``work``, computed in one process for each tuple.

    Joblib keeps the processes for later calls.
    """
    joblib = import_optional("joblib", "sklearn", "processes= of an Oracle")
    results: list[Any] = joblib.Parallel(n_jobs=len(work))(joblib.delayed(call)(*one) for one in work)
    return results


def function_argument_names(function: Function) -> set[str]:
    """Return the names of the arguments of a function, or of the ``forward`` of a module.

    A function without a signature, such as one written in C, gives an empty set.
    """
    function = function.forward if isinstance(function, nn.Module) else function
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def _digest_oracle_function_input(cost: Array, key: Hashable) -> bytes:
    """Return a digest of a cost (n,) and the id of its sample. The costs −0 and 0 have the same digest."""
    return blake2b((cost + 0.0).tobytes() + repr(key).encode(), digest_size=16).digest()
