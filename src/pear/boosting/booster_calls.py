"""``BoosterCallReader``: reads the arguments of the calls that LightGBM and XGBoost make."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear.problem import Model, Problem
from pear.problem.model import model_input_count
from pear.problem.pandas_data import check_pandas_rows
from pear.train.long_table import group_long_table

Array = np.ndarray[Any, Any]


class BoosterCallReader:
    """The base class of objective and metric, which reads the arguments that LightGBM and XGBoost pass to them.

    Args:
        problem: the decision problem, which needs k predicted values for each sample.
        true: (N, k) true values, or None for the labels of the data.
        groups: (N·k,) the ids of the samples that the rows of a long table belong to, or None.
    """

    def __init__(self, problem: Problem | Model, true: Any, groups: Any) -> None:
        self.problem, self.inputs = problem, model_input_count(problem)
        check_pandas_rows({"true": true, "groups": groups})
        self.groups = None if groups is None else group_long_table(groups, np.size(groups), self.inputs)
        self.true = None if true is None else self._rows(true, "true")

    def _rows(self, values: Any, name: str) -> Array:
        """Return values (N, k) or (N·k,) as an array (N, k).

        The k values of a sample are consecutive in a flat array, unless ``groups`` says which values belong together.
        ``name`` is the name of the values in error messages.
        """
        array = np.asarray(values, dtype=float)
        if self.groups is not None:
            if array.size != self.groups.rows.size:
                raise ProblemError(
                    f"{name} must have a value for each of the {self.groups.rows.size} rows that groups names; got "
                    f"{np.shape(values)}"
                )
            return self.groups.gather(array.ravel())
        if array.ndim == 1 and array.size % self.inputs == 0:
            array = array.reshape(-1, self.inputs)
        if array.ndim != 2 or array.shape[1] != self.inputs:
            raise ProblemError(
                f"{name} must have shape (N, {self.inputs}), or N·{self.inputs} entries sample by sample; got "
                f"{np.shape(values)}. With LightGBM, pass num_class={self.inputs} and the true values to the objective"
            )
        return array

    def _read_call(self, first: Any, second: Any) -> tuple[Array, Array]:
        """Return the predicted values (N, k) and the true values (N, k) of a call: k values of each sample.

        Args:
            first, second: the predicted values and a ``Dataset`` or ``DMatrix``; or, from the interfaces of
                scikit-learn, the true values and the predicted values.
        """
        native = hasattr(second, "get_label")
        predicted = self._rows(first if native else second, "the forecasts")
        true = self.true
        if true is None:
            label = second.get_label() if native else first
            if np.size(label) != predicted.size:
                raise ProblemError(
                    f"{np.size(label)} labels came for {predicted.size} forecasts; LightGBM keeps one label a row: "
                    "pass the true values (N, k) as `true`"
                )
            true = self._rows(label, "the labels")
        if native and predicted.size * self.inputs == true.size:
            raise ProblemError(
                f"{predicted.size} forecasts came for the {true.size} true values of {len(true)} samples: set "
                f"num_class={self.inputs} in the settings of LightGBM, so that a row has a forecast for each value"
            )
        if true.shape != predicted.shape:
            raise ProblemError(f"{len(true)} samples have true values, and forecasts came for {len(predicted)}")
        return predicted, true
