"""Staffing with shifts fixed before demand is known: scenarios from past errors compared with trained scenarios.

    python lab/studies/scenario_training_study.py [--seeds 10] [--days 150] [--scenarios 8]

Shifts are the first stage. Temporary workers, whose pay is predicted, and overtime are decided when the demand is
known. Equally many days fit the linear forecast, choose the epoch, and are tested. The distribution of demand is
skewed, and its spread grows with one of the features. Scenarios from past errors have the same spread on all days,
while trained scenarios may depend on the features. The table has the mean regret over seeds on unseen days, and the
difference from planning by a fixed quantile of the errors, with the level that is best on these days.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

import pear
from pear.scenarios import ResidualScenarios, residual_scenarios
from pear_lab.report.bootstrap import t_interval
from recourse_study import staffing

QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9)
PARTS = 5


def errors_of(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the errors (N, k) of a ridge regression of Y (N, k) on X (N, p), from a cross-validation."""
    found = np.zeros_like(Y)
    for part in np.array_split(np.arange(len(X)), PARTS):
        rest = np.setdiff1d(np.arange(len(X)), part)
        found[part] = Y[part] - RidgeCV(np.logspace(-2, 3, 11)).fit(X[rest], Y[rest]).predict(X[part])
    return found


def linear_of(X: np.ndarray, Y: np.ndarray) -> torch.nn.Linear:
    """Return a linear layer with the weights of a ridge regression of Y (N, k) on X (N, p)."""
    ridge = RidgeCV(np.logspace(-2, 3, 11)).fit(X, Y)
    layer = torch.nn.Linear(X.shape[1], Y.shape[1], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(ridge.coef_))
        layer.bias.copy_(torch.from_numpy(ridge.intercept_))
    return layer


def compare(days: int, scenarios: int, seed: int) -> dict[str, float]:
    """Return the normalised test regret in percent, by rule."""
    drawn = staffing(3 * days, seed)
    (X, V, T), (Y, W, U) = np.array_split(drawn.features, 3), np.array_split(drawn.values, 3)
    shifts = drawn.model.problem.n - 12
    names = [f"shift[{i}]" for i in range(shifts)] + [f"temporary[{i}]" for i in range(12)]
    model = replace(drawn.model, variables=tuple(names), layout={})
    single, plan = (pear.Stochastic(model, names[:shifts], count) for count in (1, scenarios))
    errors, linear, truth = errors_of(X, Y), linear_of(X, Y), torch.from_numpy(U)
    best = float(single.best(truth).sum())

    def lost(by: pear.Stochastic, values: Tensor) -> float:
        return 100 * float(by.regret(values.detach(), truth).sum()) / best

    def train(by: pear.Stochastic, net: torch.nn.Module) -> float:
        pairs = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in ((X, Y), (V, W))]
        config = pear.FitConfig(max_epochs=20, batch_size=25, patience=3)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
        torch.manual_seed(seed)
        pear.fit(net, pear.ScenarioLoss(by), *pairs, optimizer=optimizer, config=config)
        return lost(by, net(torch.from_numpy(T)))

    forecasts = linear(torch.from_numpy(T)).detach()
    found = {"mean": lost(single, forecasts)}
    for level in QUANTILES:
        found[f"quantile {level:g}"] = lost(single, forecasts + torch.from_numpy(np.quantile(errors, level, axis=0)))
    past = residual_scenarios(np.zeros((1, errors.shape[1])), errors, scenarios, seed=seed)[0]
    found[f"{scenarios} past errors"] = lost(plan, forecasts[:, None] + past)
    found["one forecast, trained on its regret"] = train(single, linear_of(X, Y))
    found[f"{scenarios} scenarios, trained on their regret"] = train(plan, ResidualScenarios(linear, past, X.shape[1]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=int, default=150)
    parser.add_argument("--scenarios", type=int, default=8)
    args = parser.parse_args()
    runs = [compare(args.days, args.scenarios, seed) for seed in range(args.seeds)]
    table = {rule: np.array([run[rule] for run in runs]) for rule in runs[0]}
    best = min((rule for rule in table if rule.startswith("quantile")), key=lambda rule: table[rule].mean())
    print(f"| rule | regret | below {best}, points (95 %) |\n|---|---:|---:|")
    for rule, values in table.items():
        gain = t_interval((table[best] - values).tolist())
        apart = "" if rule == best else f"{gain.estimate:.2f} ({gain.low:.2f} to {gain.high:.2f})"
        print(f"| {rule} | {values.mean():.2f} % | {apart} |")


if __name__ == "__main__":
    main()
