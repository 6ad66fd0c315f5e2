"""Functions that read, check and count features, costs, ids and weights, which have a row for each sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear.problem.model import model_input_count, problem_of_model
from pear.problem.pandas_data import check_pandas_rows, has_pandas_index
from pear.problem.tensor_conversion import to_numpy, to_tensor
from pear.train.long_table import Array

Keys = Tensor | list[Hashable]
"""The ids of N samples: a tensor (N,) of whole numbers, or a list of names."""


def read_sample_rows(value: Any, name: str) -> Tensor:
    """Return features or costs as a tensor with a row for each sample. A pandas Series becomes one column.

    Args:
        value: a tensor, an array, a list or a pandas table.
        name: the name of the value in error messages.

    Raises:
        ProblemError: the value does not hold numbers; the message names the column of a table.
    """
    tensor = to_tensor(name, value).detach()
    if has_pandas_index(value):
        tensor = tensor.double().reshape(len(value), -1)
    if not tensor.ndim:
        raise ProblemError(f"{name} must have a row for each sample; got a single number")
    return tensor


def read_sample_keys(value: Any, count: int, name: str) -> Keys:
    """Return sample ids as a tensor (N,) if they are whole numbers, and otherwise as a list.

    Args:
        value: the ids.
        count: N, the number of samples.
        name: the name of the samples in error messages.

    Raises:
        ProblemError: the value does not hold N whole numbers or names, or one of them occurs twice.
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
    twice = [one for one, times in Counter(ids).items() if times > 1]
    if twice:
        raise ProblemError(
            f"the sample ids of {name} must be distinct, and {twice[0]!r} comes twice; number the samples, or leave "
            "the ids away (as with a sampler that draws with replacement)"
        )
    return torch.tensor(ids) if all(isinstance(one, int) for one in ids) else ids


def check_sample_rows(features: Any, costs: Any, ids: Any = None, sample_weight: Any = None) -> None:
    """Raise ProblemError if the pandas indices of features, costs, ids and weights differ.

    ``features`` may have several inputs. Tables without a pandas index are not checked.
    """
    if isinstance(features, Mapping):
        inputs = {f"input {name!r}": part for name, part in features.items()}
    elif isinstance(features, (tuple, list)):
        inputs = {f"input {number}": part for number, part in enumerate(features)}
    else:
        inputs = {"features": features}
    check_pandas_rows({**inputs, "costs": costs, "ids": ids, "sample_weight": sample_weight})


def check_sample_weight_rows(data: Any, weight: Any, name: str) -> None:
    """Raise ProblemError if weights come without samples, or if their pandas index differs from that of the samples.

    Args:
        data: the samples, in any form that ``fit`` accepts.
        weight: (N,) weights, or None.
        name: the name of the weights in error messages.
    """
    if weight is None:
        return
    if data is None or isinstance(data, (bool, int, float)):
        raise ProblemError(f"{name} came without samples; pass validation=(X, C), whose samples it weighs")
    if isinstance(data, (tuple, list)) and len(data) > 1:
        check_sample_rows(data[0], data[1], None, weight)


def count_sample_rows(table: Any) -> int:
    """Return the number of rows of a table, a tensor, an array or a list."""
    return int((table if hasattr(table, "shape") else np.asarray(table)).shape[0])


def take_sample_rows(table: Any, rows: Array) -> Any:
    """Return the rows with these numbers of a pandas table, a tensor, an array or a list."""
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    return table[torch.from_numpy(rows)] if isinstance(table, Tensor) else np.asarray(table)[rows]


def read_sample_values(problem: Problem | Model, values: Any, name: str) -> np.ndarray[Any, Any]:
    """Return predicted or true values as an array (N, k). Values (N,) are allowed if k is 1.

    Args:
        problem: the problem, which needs k predicted values for each sample.
        values: the values.
        name: the name of the values in error messages.

    Raises:
        ProblemError: the values have another number of columns.
    """
    array, inputs = to_numpy(values, name), model_input_count(problem)
    rows = array[:, None] if array.ndim == 1 else array
    if rows.ndim != 2 or rows.shape[1] != inputs:
        raise ProblemError(
            f"{name} must have shape (N, {inputs}), a column for each of the {inputs} values that the problem needs of "
            f"a sample; got {array.shape}. A table with a row for each value: pass groups="
        )
    return rows


def sample_rows_to_tensor(problem: Problem | Model, values: np.ndarray[Any, Any]) -> Tensor:
    """Return an array of values as a float64 tensor on the device of the problem."""
    tensor, device = torch.from_numpy(values.astype(float)), problem_of_model(problem).device
    return tensor if device.type == "cpu" else tensor.to(device)
