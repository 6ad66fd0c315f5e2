"""Tables with a row for each sample: features, costs, ids, weights and values as tensors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear.problem.model import model_input_count, problem_of_model
from pear.problem.pandas_data import check_pandas_rows
from pear.problem.tensor_conversion import to_tensor
from pear.train.long_table import Array

Keys = Tensor | list[Hashable]
"""(N,) sample ids: row numbers, or names."""


def read_sample_rows(value: Any, name: str) -> Tensor:
    """Convert to a tensor with a row for each sample; a Series becomes one column.

    Raises:
        ProblemError: there are no numbers in it; names the column of a table.
    """
    # pandas, which need not be installed, has iloc
    tensor = (
        torch.from_numpy(_frame_to_rows(value, name)) if hasattr(value, "iloc") else to_tensor(name, value).detach()
    )
    if not tensor.ndim:
        raise ProblemError(f"{name} must have a row for each sample; got a single number")
    return tensor


def read_sample_keys(value: Any, count: int, name: str) -> Keys:
    """Convert N sample ids: whole numbers to a tensor, anything else to a list.

    Raises:
        ProblemError: they are not ids, not as many as samples, or one comes twice.
    """
    ids = value.tolist() if hasattr(value, "tolist") else list(value)
    if any(isinstance(one, (list, float)) for one in ids):
        kind = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else repr(ids[0])
        raise ProblemError(
            f"the third entry of {name} must be sample ids, a whole number or a name for each; got {kind}. Several "
            "inputs of a model go together: ((a, b), costs)"
        )
    if len(ids) != count:
        raise ProblemError(f"{name} must have an id for each sample: expected {count}, got {len(ids)}")
    _check_distinct_keys(ids, name)
    return torch.tensor(ids) if all(isinstance(one, int) for one in ids) else ids


def _check_distinct_keys(ids: list[Hashable], name: str) -> None:
    """Raise ProblemError where an id occurs twice."""
    if len(set(ids)) == len(ids):
        return
    seen: set[Hashable] = set()
    twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
    raise ProblemError(
        f"the sample ids of {name} must be distinct, and {twice!r} comes twice; number the samples, or leave the ids "
        "away (as with a sampler that draws with replacement)"
    )


def check_sample_rows(features: Any, costs: Any, ids: Any = None, sample_weight: Any = None) -> None:
    """Raise ProblemError where features of one input or several, costs, ids and weights have indices that differ."""
    if isinstance(features, Mapping):
        inputs = {f"input {name!r}": part for name, part in features.items()}
    elif isinstance(features, (tuple, list)):
        inputs = {f"input {number}": part for number, part in enumerate(features)}
    else:
        inputs = {"features": features}
    check_pandas_rows({**inputs, "costs": costs, "ids": ids, "sample_weight": sample_weight})


def check_sample_weight_rows(data: Any, weight: Any, name: str) -> None:
    """Raise ProblemError where weights have an index that differs from that of the samples, or samples have none.

    Args:
        data: the samples, as ``fit`` takes them.
        weight: (N,) weights, or None.
        name: the name of the weights in messages.
    """
    if weight is None:
        return
    if data is None or isinstance(data, (bool, int, float)):
        raise ProblemError(f"{name} came without samples; pass validation=(X, C), whose samples it weighs")
    if isinstance(data, (tuple, list)) and len(data) > 1:
        check_sample_rows(data[0], data[1], None, weight)


def _frame_to_rows(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert a DataFrame to an array (N, columns), or a Series to (N, 1); missing values become NaN."""
    columns = list(value.items()) if value.ndim == 2 else [(value.name, value)]
    for column, content in columns:
        if getattr(content.dtype, "kind", "O") not in "biuf":
            raise ProblemError(
                f"column {column!r} of {name} holds {content.dtype}, and a model takes numbers; encode it, for example "
                "by pandas.get_dummies, or drop it"
            )
    parts = [content.to_numpy(dtype=float, na_value=np.nan) for _, content in columns]
    return np.stack(parts, 1) if parts else np.zeros((len(value), 0))


def count_sample_rows(table: Any) -> int:
    """The number of rows of a table, a tensor, or anything that NumPy takes."""
    return int((table if hasattr(table, "shape") else np.asarray(table)).shape[0])


def take_sample_rows(table: Any, rows: Array) -> Any:
    """Rows of an array or of a pandas table, by number."""
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    return table[torch.from_numpy(rows)] if isinstance(table, Tensor) else np.asarray(table)[rows]


def read_sample_values(problem: Problem | Model, values: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert predicted or true values to (N, k); (N,) is accepted where k is 1.

    Raises:
        ProblemError: another number of columns.
    """
    array, inputs = np.asarray(values), model_input_count(problem)
    rows = array[:, None] if array.ndim == 1 else array
    if rows.ndim != 2 or rows.shape[1] != inputs:
        raise ProblemError(
            f"{name} must have shape (N, {inputs}), a column for each of the {inputs} values that the problem needs of "
            f"a sample; got {array.shape}. A table with a row for each value: pass groups="
        )
    return rows


def sample_rows_to_tensor(problem: Problem | Model, values: np.ndarray[Any, Any]) -> Tensor:
    """Convert values to a float64 tensor on the device of the problem."""
    return torch.as_tensor(values.astype(float), device=problem_of_model(problem).device)
