"""The forecasters of ``pear compare``: ridge, LightGBM, MSE, PEAR, and corrections of the user's own forecasts."""

from __future__ import annotations

import importlib.util
from typing import Any

import pear
from pear.cli.console import err, print_plain
from pear.errors import DataError
from pear.wording import suggest_name

KINDS = ("ridge", "lightgbm", "mse", "pear", "correction")
"""The names for ``--forecasters``. "lightgbm" needs LightGBM, and "correction" needs the user's own forecasts."""


def make_compared_forecasters(
    kinds: list[str], X: Any, own: dict[str, Any], regressor: pear.DecisionRegressor, seed: int
) -> dict[str, Any]:
    """Return the forecasters for ``pear compare``.

    Args:
        kinds: names among "ridge", "lightgbm", "mse", "pear" and "correction".
        X: the features of all rows, a DataFrame.
        own: the user's own forecasts by name: (N, k) for N samples of k values, or (N·k,) in a long table.
        regressor: an untrained regressor with the settings of "mse", "pear" and "correction".
        seed: the seed of LightGBM.

    Returns:
        The argument ``forecasters`` of ``pear.walk_forward``, with the user's own forecasts first.

    Raises:
        DataError: a name is unknown.
    """
    import numpy as np
    from sklearn.base import clone
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise DataError(f"--forecasters: there is no {unknown[0]!r}{suggest_name(unknown[0], KINDS)}")
    found: dict[str, Any] = dict(own)
    for kind in kinds:
        if kind == "ridge":
            found[kind] = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 5, 15)))
        elif kind == "lightgbm":
            if importlib.util.find_spec("lightgbm") is None:
                print_plain("LightGBM is not installed, and left out; pip install 'pear-dfl[lightgbm]'", to=err)
                continue
            from lightgbm import LGBMRegressor

            found[kind] = LGBMRegressor(verbose=-1, n_jobs=1, random_state=seed)
        elif kind == "correction":
            for name, forecasts in own.items():
                table = np.column_stack([X.to_numpy(), forecasts])
                found[f"{name} + pear"] = CorrectedForecaster(clone(regressor), X.shape[1]), table
        else:
            found[kind] = clone(regressor).set_params(loss={"mse": "mse", "pear": "pear-guided"}[kind])
    return found


_INNER = "regressor__"  # prefix of the regressor's parameters among those of CorrectedForecaster


class CorrectedForecaster:
    """An estimator that corrects forecasts, which are the last columns of its features.

    Args:
        regressor: the regressor that learns the correction.
        columns: the number of feature columns before the forecasts.
    """

    def __init__(self, regressor: pear.DecisionRegressor, columns: int) -> None:
        self.regressor, self.columns = regressor, columns

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, for scikit-learn; ``deep`` adds those of the regressor."""
        inner = self.regressor.get_params(deep=False) if deep else {}
        own = {"regressor": self.regressor, "columns": self.columns}
        return {**own, **{f"{_INNER}{name}": value for name, value in inner.items()}}

    def set_params(self, **given: Any) -> CorrectedForecaster:
        """Set parameters, including those of the regressor, and return this estimator."""
        for name, value in given.items():
            if name.startswith(_INNER):
                self.regressor.set_params(**{name.removeprefix(_INNER): value})
            else:
                setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any, groups: Any = None) -> CorrectedForecaster:
        """Learn the correction, and return this estimator.

        Rows without a forecast are left out. In a long table, a group with a missing forecast is left out as a whole.
        """
        import numpy as np

        from pear.problem.sample_keys import count_keyed_samples

        known = np.isfinite(X[:, self.columns :]).all(axis=1)
        if groups is not None:
            known = np.isin(groups, np.unique(groups[~known]), invert=True)
        if not known.any():
            raise DataError(
                "no training row has a forecast that could be corrected; leave out --forecasters correction"
            )
        options = {} if groups is None else {"groups": groups[known]}
        problem = self.regressor.problem
        if (
            count_keyed_samples(problem) is not None
        ):  # the problem has fields for all samples, including those left out here
            samples = np.flatnonzero(known) if groups is None else np.unique(groups[known])
            self.regressor.set_params(problem=problem[samples.tolist()])
        self.regressor.fit(X[known, : self.columns], y[known], base_forecast=self._forecasts(X[known]), **options)
        self.history_ = self.regressor.history_
        return self

    def predict(self, X: Any) -> Any:
        """Return the corrected forecasts."""
        return self.regressor.predict(X[:, : self.columns], base_forecast=self._forecasts(X))

    def _forecasts(self, X: Any) -> Any:
        """Return the forecasts in the last columns of X, k for each of B rows: (B, k), or (B,) if k is 1."""
        found = X[:, self.columns :]
        return found[:, 0] if found.shape[1] == 1 else found
