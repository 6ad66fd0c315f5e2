"""The samples of a walk forward: features, true values and labels.

A wide table has a row for each sample. A long table has a row for each of the k values of each sample.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import ProblemError
from pear.evaluation.time_splits import Rows
from pear.problem import Model, Problem
from pear.problem.known_samples import insert_known_samples, read_known_samples
from pear.problem.model import model_input_count
from pear.problem.pandas_data import check_pandas_order, check_pandas_rows, has_pandas_index, is_pandas_frame
from pear.problem.sample_keys import count_keyed_samples
from pear.train.long_table import LongTable, group_long_table
from pear.train.samples.sample_rows import read_sample_values
from pear.wording import list_positions

Array = NDArray[np.float64]


class WalkFeatures:
    """The features of all samples, as a wide or a long table.

    Args:
        name: the name of the table in messages.
        X: p features, in a wide table (N, p) or a long table (N·k, p): an array, a DataFrame, a tensor, a sparse
            matrix or lists.
        count: N, the number of samples.
        groups: which rows of long tables belong to each sample, or None if the user gave no groups.

    Attributes:
        is_long: whether the table is a long one.
        values_per_sample: the number of rows of a sample: k in a long table, otherwise 1.

    Raises:
        ProblemError: the number of rows is wrong, or dates or samples are in a wrong order.
    """

    def __init__(self, name: str, X: Any, count: int, groups: LongTable | None) -> None:
        self.X, self._groups = to_walk_table(X), groups
        rows = self.X.shape[0]
        self.is_long = groups is not None and rows == groups.rows.size != count
        self.values_per_sample = groups.rows.shape[1] if self.is_long and groups is not None else 1
        if rows != count and not self.is_long:
            long = "" if groups is None else f", or {groups.rows.size}, one for each id of groups"
            raise ProblemError(f"{name} has {rows} rows; expected {count}, one for each sample of C{long}")
        _check_walk_dates(name, self.X)
        if groups is not None and not self.is_long and is_pandas_frame(self.X):
            ids = list(self.X.index)
            if ids != list(groups.ids) and set(ids) == set(groups.ids):
                raise ProblemError(
                    f"the rows of {name} are named as the groups, but in another order; groups are ordered by their "
                    f"first rows: sort {name}"
                )

    def take(self, samples: Rows) -> Any:
        """Return the rows of these samples, sample after sample, in the type of the table."""
        rows = self._groups.rows[samples].ravel() if self.is_long and self._groups is not None else samples
        return self.X.iloc[rows] if is_pandas_frame(self.X) else self.X[rows]


class WalkSamples:
    """The features and true values of N samples.

    Args:
        problem: the decision problem.
        X: (N, p), p features; with groups also (N·k, p).
        C: (N, k) the true values, or (N,) if k is 1; with groups also (N·k,).
        groups: (N·k,) for each row of a long table, the id of its sample; None without long tables.
        known: the known values of each sample, if the problem is a model with known values.

    Attributes:
        problem: the problem, which includes the known values of all samples.
        known: (N, m) the m known numbers of each sample, in the order of the model's ``known_map``; None without known
            values.
        true: (N, k) the true values in float64.
        features: the features.
        groups: which rows of long tables belong to each sample, or None.
        C: the true values as the user passed them.
        labels: (N,) the ids of the groups, or the index of X or C if one of them is a pandas table, or the numbers of
            the samples. Dates become local times.

    Raises:
        ProblemError: numbers of rows or columns do not fit, a value is not finite, or dates are not in order.
    """

    def __init__(self, problem: Problem | Model, X: Any, C: Any, groups: Any = None, known: Any = None) -> None:
        self.problem, self.C = problem, to_walk_table(C)
        self._given = {"X": X, "C": C, "groups": groups, "known": known}
        self.groups = None if groups is None else group_long_table(groups, len(groups), model_input_count(problem))
        self.true = self.read_values(self.C, "C")
        self._wide_C = len(self.C) == len(self.true) and is_pandas_frame(self.C)
        if self._wide_C:
            check_pandas_order(problem, self.C, self.C)
        count = len(self.true)
        unusable = np.flatnonzero(~np.isfinite(self.true).all(1))
        if len(unusable):
            where = list_positions("row", unusable.tolist())
            raise ProblemError(f"C is not finite in {where}; leave such rows out")
        own = count_keyed_samples(problem)
        if own not in (None, count):
            raise ProblemError(f"the problem has fields of its own for {own} samples, and C has {count}")
        self.check_pairing("C", C)
        self.known = read_known_samples(problem, known, count)
        self.problem = insert_known_samples(problem, self.known)
        self.features = self.read_features("X", X)
        _check_walk_dates("C", C)
        self.labels = self._find_labels([table for table in (X, C) if has_pandas_index(table)])

    def __len__(self) -> int:
        return len(self.true)

    def read_features(self, name: str, X: Any) -> WalkFeatures:
        """Return the features X of all samples as ``WalkFeatures``; ``name`` is the name of the table in messages."""
        found = WalkFeatures(name, X, len(self), self.groups)
        self.check_pairing(name, X)
        return found

    def check_pairing(self, name: str, table: Any) -> None:
        """Raise ``ProblemError`` if a table's index differs from that of the known values, or of X, C or groups.

        X, C and groups are compared with the table only if they have as many rows as the table.
        """
        if has_pandas_index(table):
            as_long = {own: one for own, one in self._given.items() if has_pandas_index(one) and len(one) == len(table)}
            check_pandas_rows({**as_long, "known": self._given["known"], name: table})

    def read_values(self, values: Any, name: str) -> Array:
        """Return k forecasts or true values of all N samples, from a wide or a long table, as float64 (N, k)."""
        table = to_walk_table(values)
        if self.groups is not None and self.groups.rows.size == np.size(table) and len(table) != len(self.groups):
            table = self.groups.gather(np.asarray(table).reshape(-1))
        return read_sample_values(self.problem, table, name).astype(np.float64)

    def targets(self, samples: Rows, is_long: bool) -> Any:
        """Return the true values of B samples in the form that estimators expect.

        Args:
            samples: (B,) numbers of samples.
            is_long: whether the estimator forecasts the rows of a long table.

        Returns:
            (B·k,) for a long table; otherwise a DataFrame if C is a wide DataFrame, else an array (B, k). If k is 1,
            the result has shape (B,).
        """
        if is_long:
            return self.true[samples].reshape(-1)
        if self._wide_C:
            return self.C.iloc[samples, 0] if self.C.shape[1] == 1 else self.C.iloc[samples]
        return self.true[samples, 0] if self.true.shape[1] == 1 else self.true[samples]

    def _find_labels(self, tables: list[Any]) -> NDArray[Any]:
        """Return a label (N,) for each sample: the id of its group, else an index of ``tables``, else its number.

        Raise ``ProblemError`` if groups are dates that are not in order.
        """
        if self.groups is not None:
            pandas = sys.modules.get("pandas")
            if pandas is None:
                return np.asarray(self.groups.ids)
            index = pandas.Index(self.groups.ids)
            _check_walk_dates("groups", pandas.DataFrame(index=index))
            return _read_walk_labels(index)
        return _read_walk_labels(tables[0].index) if tables else np.arange(len(self))


def to_walk_table(table: Any) -> Any:
    """Return a table that can be indexed by row numbers: a DataFrame, a CSR matrix or an array."""
    if isinstance(table, Tensor):
        return table.detach().cpu().numpy()
    if is_pandas_frame(table) or isinstance(table, np.ndarray):
        return table
    if hasattr(table, "tocsr"):
        return table.tocsr()
    return np.asarray(table)


def _read_walk_labels(index: Any) -> NDArray[Any]:
    """Return a pandas index as an array (N,). Dates become datetime64 in their local time."""
    index = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    return np.asarray(index if getattr(index, "tz", None) is None else index.tz_localize(None))


def _check_walk_dates(name: str, table: Any) -> None:
    """Raise ``ProblemError`` if the index of a table has dates that are not in order."""
    if not has_pandas_index(table):
        return
    import pandas

    if not isinstance(table.index, (pandas.DatetimeIndex, pandas.PeriodIndex)):
        return
    if not table.index.is_monotonic_increasing:
        late = int(np.flatnonzero(table.index[1:] < table.index[:-1])[0]) + 1
        raise ProblemError(
            f"the dates of {name} are not in order: row {late}, {table.index[late]}, comes after "
            f"{table.index[late - 1]}; sort the rows by date"
        )
