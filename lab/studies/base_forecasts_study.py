"""Ways to correct a trained forecaster (``base=``) on PJM days whose prices drift.

A correction is trained on forecasts of the training days. They are made either by copies of the base that have not seen
these days, or by the base itself, which has. With ``base=``, a correction of each kind is trained, and with the default
models also a model without the base. A race on held-out days chooses one of these models. A ``FrozenEstimator`` is
already fitted, and only its own forecasts are corrected. The study prints the mean regret on the test days.

Run: PEAR_DATA=… OMP_NUM_THREADS=1 python lab/studies/base_forecasts_study.py
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import pear
from pear.train.estimator.networks import NetworkStandardisation
from pear_lab.data import load_pjm_days
from pear_lab.tasks.battery_task import PJM, battery

TRAIN, EARLY, TEST = 700, 550, 200
"""The number of days to train on, the number of these before those that validate, and the number of days to test on."""

LAST = 300, 600
"""The number of days after the test days of each window; the last 200 days of the file are in no window."""

EPOCHS = 32
PROBLEM = battery(PJM)
BASES: dict[str, Any] = {
    "ridge": make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 5, 15))),
    "LightGBM": MultiOutputRegressor(lightgbm.LGBMRegressor(n_estimators=60, verbose=-1, n_jobs=1)),
}


def compare_forecasts(name: str, X: np.ndarray, C: np.ndarray) -> Iterator[tuple[str, float, str]]:
    """For each way to use a base, yield its description, the mean regret of a test day, and the winner of the race.

    The winner is empty if no model was trained.

    Args:
        name: the name of the base.
        X: (TRAIN + TEST, p) the features of the days.
        C: (TRAIN + TEST, 24) their prices.
    """
    train, early, later, test = slice(TRAIN), slice(EARLY), slice(EARLY, TRAIN), slice(TRAIN, None)
    whole, first = (clone(BASES[name]).fit(X[part], C[part]) for part in (train, early))
    yield "the base alone", float(pear.regret(PROBLEM, whole.predict(X[test]), C[test]).mean()), ""
    features = torch.from_numpy(X[train])
    module = nn.Sequential(NetworkStandardisation(features), nn.Linear(X.shape[1], C.shape[1], dtype=features.dtype))
    ways = {
        "no base": (None, train, None),
        "base=": (BASES[name], train, None),
        "base=, module": (BASES[name], train, None),
        "base=, validation=": (BASES[name], early, (X[later], C[later])),
        "frozen": (FrozenEstimator(whole), train, None),
        "frozen, validation=": (FrozenEstimator(first), early, (X[later], C[later])),
    }
    for way, (base, rows, validation) in ways.items():
        network: Any = module if way.endswith("module") else "linear"
        model = pear.DecisionRegressor(PROBLEM, network, base=base, max_epochs=EPOCHS)
        model.fit(X[rows], C[rows], validation)
        lost = float(pear.regret(PROBLEM, model.predict(X[test]), C[test]).mean())
        yield way, lost, model.history_.choice.split(" won")[0]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    days = load_pjm_days()
    X, C = days.features.numpy(), days.prices.numpy()
    for base in BASES:
        for last in LAST:
            rows = slice(len(X) - last - TRAIN - TEST, len(X) - last)
            began = time.process_time()
            for way, lost, choice in compare_forecasts(base, X[rows], C[rows]):
                spent, began = time.process_time() - began, time.process_time()
                print(
                    f"{base:8} {last} days before the end  {way:20} {lost:7.3f}  {spent:4.0f} s  {choice}", flush=True
                )
