"""``KnownMap``: costs, right-hand sides, bounds and matrices as functions of values known for every sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import field_checks
from pear.problem.constraint_map import SIDES, constraint_sides
from pear.problem.cost_map import CostMap, read_cost_map_matrix
from pear.problem.curvature_checks import check_curvature_sign, check_curvature_symmetry
from pear.problem.indexed_names import index_names
from pear.problem.matrix import MATRICES, to_csr_matrix
from pear.problem.problem import Problem
from pear.problem.problem_fields import given_fields
from pear.problem.tensor_conversion import tensor_shape, to_float64_tensor

TARGETS = ("cost", "offset", *SIDES, *MATRICES)
"""What known values may change: the costs, the objective's constant, right-hand sides, bounds, and Q, A and G."""
_MOST_NAMED = 6  # largest number of known values that an error message names


@dataclass(frozen=True)
class KnownValue:
    """A value that is known before the decision and may differ between samples, such as a battery's level this morning.

    Attributes:
        name: the name of the value.
        shape: the shape of the value, () for a number.
        labels: the names of the entries, row by row; by default name[0], name[1], …, or the name itself for a number.
        sign: 1 if no entry may be negative, −1 if no entry may be positive, 0 if both signs are allowed.
    """

    name: str
    shape: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    sign: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "labels", tuple(self.labels) or index_names(self.name, self.shape))

    @property
    def size(self) -> int:
        """The number of entries of the value."""
        return int(np.prod(self.shape))


class KnownMap:
    """The map from known values κ (k,) of a sample to costs, right-hand sides, bounds, Q, A and G.

    Under known values a field of the model becomes ``field + M κ``, where M is the matrix that is passed for the field.
    An infinite bound that κ changes becomes ``M κ``. The model has n variables, p equalities and m inequalities. The
    vector κ holds the entries of all known values one after another, each value flattened row by row. Importers make
    the map from the names in ``known=``, and ``Model.with_known`` fills in the values of samples.

    Args:
        values: a dictionary from the names of the known values to their shapes, () for a number, in the order of κ; or
            ``KnownValue`` objects.
        cost: (n, k) matrix for the costs, dense or sparse.
        offset: (1, k) matrix for the constant of the objective.
        b: (p, k) matrix for the right-hand sides of equalities.
        h: (m, k) matrix for the right-hand sides of inequalities.
        lb: (n, k) matrix for the lower bounds.
        ub: (n, k) matrix for the upper bounds.
        Q: (n·n, k) matrix for the curvature, flattened row by row.
        A: (p·n, k) matrix for the coefficients of equalities, flattened row by row.
        G: (m·n, k) matrix for the coefficients of inequalities, flattened row by row.

    Attributes:
        values: the ``KnownValue`` objects.
        names: the names of the k entries of κ.
        targets: what the values change, among ``cost``, ``offset``, ``b``, ``h``, ``lb``, ``ub``, ``Q``, ``A``, ``G``.

    Raises:
        ProblemError: a matrix does not have k columns, or has an entry that is not finite.

    Example:
        >>> level = KnownMap({"level": ()}, b=[[1.0], [0.0]])
        >>> level
        KnownMap(level → b)
        >>> level.read({"level": [5.0, 7.0]})
        tensor([[5.],
                [7.]], dtype=torch.float64)
    """

    def __init__(
        self,
        values: Mapping[str, Sequence[int]] | Iterable[KnownValue],
        cost: Any = None,
        offset: Any = None,
        b: Any = None,
        h: Any = None,
        lb: Any = None,
        ub: Any = None,
        Q: Any = None,
        A: Any = None,
        G: Any = None,
    ) -> None:
        if isinstance(values, Mapping):
            values = [KnownValue(name, tuple(size)) for name, size in values.items()]
        self.values: tuple[KnownValue, ...] = tuple(values)
        self.names = tuple(label for one in self.values for label in one.labels)
        given = given_fields(cost=cost, offset=offset, b=b, h=h, lb=lb, ub=ub, Q=Q, A=A, G=G)
        self._maps = {
            name: CostMap(read_cost_map_matrix(matrix, f"{name} of a known map", "(size, k)"))
            for name, matrix in given.items()
        }
        self.targets = tuple(self._maps)
        for name, one in self._maps.items():
            if one.inputs != len(self.names):
                raise ProblemError(
                    f"{name} of a known map must have a column for each of the {len(self.names)} known numbers; got "
                    f"{one.inputs} columns"
                )

    def matrix(self, name: str) -> Any:
        """Return the matrix M of a field, a tensor or SciPy's CSR; None if known values do not change the field.

        Args:
            name: "cost", "offset", "b", "h", "lb", "ub", "Q", "A" or "G".
        """
        return self._maps[name].M if name in self._maps else None

    def check(self, problem: Problem) -> None:
        """Check that the map fits the problem.

        Raises:
            ProblemError: a matrix has the wrong number of rows, or known values change a matrix of a sparse problem.
        """
        n, own = problem.n, constraint_sides(problem)
        p, m = own["b"].shape[-1], own["h"].shape[-1]
        sizes = {"cost": n, "offset": 1, "b": p, "h": m, "lb": n, "ub": n, "Q": n * n, "A": p * n, "G": m * n}
        for name, one in self._maps.items():
            if one.n != sizes[name]:
                raise ProblemError(f"{name} of the known map must have {sizes[name]} rows; got {one.n}")
            if problem.is_sparse and name in MATRICES:
                raise ProblemError(
                    f"known values stand in {name}, and the problem, of {n} variables, is sparse: its matrices are the "
                    f"same for all samples. Give them values and leave them out of known"
                )

    def read(self, known: Any, count: int | None = None) -> Tensor:
        """Convert the known values of samples to vectors κ.

        Args:
            known: a dictionary from the names of the known values to arrays, (N, …), or (…) for a value that all
                samples share; a DataFrame with a column for each of ``names``; or, if there is one known value, an
                array.
            count: the expected number N of samples; None accepts any number.

        Returns:
            κ of every sample, (N, k) float64; (k,) if all samples share all values.

        Raises:
            ProblemError: ``known`` is None, a name is missing or unknown, a shape is wrong, or a number is not finite
                or has the wrong sign. The message says which, and what to do.
        """
        parts = self._parts(known)
        sizes = {one.name: len(part) for one, part in zip(self.values, parts, strict=True) if part.ndim == 2}
        counts = sorted(set(sizes.values()))
        if (count is not None and counts not in ([], [count])) or len(counts) > 1:
            name = next(name for name in sizes if sizes[name] != count)
            expected = f"{count}, one for each sample" if count is not None else "the same number of each"
            came = f"{sizes[name]} of {name}" if count is not None else ", ".join(f"{sizes[x]} of {x}" for x in sizes)
            raise ProblemError(f"known has rows of another number: {came}; expected {expected}")
        for one, part in zip(self.values, parts, strict=True):
            _check_known_numbers(one, part)
        if not counts:
            return torch.cat(parts)
        return torch.cat([part.expand(counts[0], -1) for part in parts], 1)

    def fields(self, problem: Problem, values: Tensor) -> dict[str, Tensor]:
        """Compute the fields of a problem that known values change.

        Args:
            problem: the problem.
            values: κ, (k,) or (N, k).

        Returns:
            The fields in ``targets``, except the cost and the offset, by name.

        Raises:
            ProblemError: bounds cross, Q is not symmetric, or Q is not convex for a minimisation or not concave for a
                maximisation.
        """
        own, n, found = constraint_sides(problem), problem.n, {}
        for name in self.targets:
            if name in ("cost", "offset"):
                continue
            change = self.change(name, values).to(problem.device)
            if name in MATRICES:
                base = getattr(problem, name)
                change = change.reshape(*change.shape[:-1], -1, n)
                found[name] = change if base is None else base + change
            else:
                found[name] = self._finite_bound(name, own[name]) + change
        if "Q" in found:
            found["Q"] = check_curvature_symmetry(found["Q"], found["Q"])
            check_curvature_sign(found["Q"], problem.sense)
        bounds = {name: found.get(name, getattr(problem, name)) for name in ("lb", "ub")}
        field_checks.check_bound_fields({name: bound for name, bound in bounds.items() if bound is not None})
        return found

    def _finite_bound(self, name: str, own: Tensor) -> Tensor:
        """Return ``own``, the problem's field ``name``, with 0 in place of infinite bounds that known values change.

        The caller adds ``M κ``, which is then the whole bound. Fields other than lb and ub are returned unchanged.
        """
        if name not in ("lb", "ub") or not bool(own.isinf().any()):
            return own
        touched = torch.from_numpy(abs(to_csr_matrix(self._maps[name].M)).sum(1) > 0).to(own.device)
        return torch.where(touched & own.isinf(), 0.0, own)

    def change(self, name: str, values: Tensor) -> Tensor:
        """Compute ``M κ``, which known values add to a field.

        Args:
            name: the field, one of ``targets``.
            values: κ, (k,) or (N, k).

        Returns:
            (entries,) or (N, entries), the changes of the entries of the field, flattened row by row.
        """
        return self._maps[name](values)

    def _parts(self, known: Any) -> list[Tensor]:
        """Return a tensor for each known value: its entries (N, size), or (size,) if all samples share the value."""
        if known is None:
            raise ProblemError(
                f"the model has known values, {self._value_names()}, and none came; pass known={{name: array}} with a "
                "row for each sample, or model.with_known(…) in place of the model"
            )
        table = {name: known[name].to_numpy() for name in known.columns} if hasattr(known, "columns") else known
        if not isinstance(table, Mapping):
            if len(self.values) > 1:
                raise ProblemError(
                    f"known came as an array, and there are {len(self.values)} known values, {self._value_names()}; "
                    "pass a dictionary from their names to arrays, or a DataFrame with columns of their names"
                )
            table = {self.values[0].name: table}
        taken: set[str] = set()
        parts = [self._part(one, table, taken) for one in self.values]
        if unknown := [name for name in table if name not in taken]:
            raise ProblemError(
                f"known holds {unknown[0]!r}, which is no known value of the model; expected {self._value_names()}"
            )
        return parts

    def _part(self, one: KnownValue, table: Mapping[Any, Any], taken: set[str]) -> Tensor:
        """Return the entries of one known value, (size,) or (N, size).

        The user passes a value as one array under the name of the value, or as one column for each entry.

        Args:
            one: the known value.
            table: the arrays and columns that the user passed, by name.
            taken: the names in the table that have been used. The names of this value are added.
        """
        if one.name in table:
            taken.add(one.name)
            value = to_float64_tensor(f"known {one.name}", table[one.name])
            shape = tensor_shape(value)
            if shape in ((*one.shape,), (*shape[:1], *one.shape)) or (shape == (*shape[:1], 1) and one.size == 1):
                return value.reshape(one.size) if shape == one.shape else value.reshape(-1, one.size)
            text = ", ".join(str(size) for size in ("N", *one.shape))
            raise ProblemError(
                f"known {one.name} has shape {shape}; expected ({text}{',' * (not one.shape)}), a row for each sample, "
                f"or {one.shape} where all samples share it"
            )
        missing = [label for label in one.labels if label not in table]
        if missing:
            raise ProblemError(
                f"known has no {missing[0] if len(missing) < len(one.labels) else one.name}; it must hold "
                f"{self._value_names()}: arrays by these names, or a column for each entry, such as {one.labels[0]}"
            )
        taken.update(one.labels)
        columns = [to_float64_tensor(f"known {label}", table[label]) for label in one.labels]
        return torch.stack(list(torch.broadcast_tensors(*columns)), -1)

    def _value_names(self) -> str:
        """Return the names of the first six known values as text, for messages."""
        names = [one.name for one in self.values]
        return ", ".join(names) if len(names) <= _MOST_NAMED else f"{', '.join(names[:_MOST_NAMED])}, …"

    def __repr__(self) -> str:
        return f"KnownMap({self._value_names()} → {', '.join(self.targets) or 'nothing'})"


def _check_known_numbers(one: KnownValue, numbers: Tensor) -> None:
    """Raise ProblemError if an entry of a known value is not finite, or has a sign that ``one.sign`` forbids."""
    wrong = ~numbers.isfinite() | (one.sign * numbers < 0)
    if bool(wrong.any()):
        at = wrong.nonzero()[0].tolist()
        row = "" if len(at) == 1 else f" of row {at[0]}"
        sign = {1: " that is not negative", -1: " that is not positive"}.get(one.sign, "")
        raise ProblemError(
            f"known {one.labels[at[-1]]}{row} is {float(numbers[tuple(at)]):g}; expected a finite number{sign}: "
            "correct it, or leave the row out"
        )
