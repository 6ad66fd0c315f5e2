"""Rules for the curvature that ``smoothing="auto"`` adds to Q, compared by the test regret after training.

    PEAR_DATA=… python lab/studies/curvature_study.py [--seeds 4] [--jobs 2] [--tasks …] [--rules …] [--epochs 100]

The command trains a linear forecaster on each task, with the curvature of each rule. It prints the mean regrets on
samples that no training has seen, in the problem without added curvature. Tasks are batteries with four kinds of Q (on
days of PJM prices if $PEAR_DATA has them, and on synthetic days), portfolios with factors and a cost of turnover, and
random quadratic programs whose Q has a low rank.

A rule adds curvature to Q in units of the variables' ranges, with the strength λ that "auto" chooses: ``floor`` (the
default) raises every eigenvalue to at least λ, ``null`` adds λ in the directions in which Q has no curvature, ``all``
adds λ in every direction, and ``nothing`` adds none. ``mse`` trains on the squared error. A number after a colon is a
factor of λ: ``floor:0.1`` uses a tenth of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import pear
from pear.decisions.smoothing import Smoothing
from pear.losses.mse import MSELoss
from pear.problem.derived_problems import problem_with_curvature

Array = NDArray[np.float64]
HOURS, CAPACITY, EFFICIENCY = 24, 1.0, 0.9
RULES = ("mse", "nothing", "null", "all", "floor:0.1", "floor:0.3", "floor", "floor:3")


class Trial(NamedTuple):
    """A model, and samples for training and for the test: features (N, p) and true values (N, k)."""

    model: pear.Model
    train: tuple[Array, Array]
    test: tuple[Array, Array]


def battery(kind: str) -> pear.Model:
    """Return a battery that buys and sells energy over a day.

    Its variables are charge and discharge in 24 hours, and the state at 25 hours. ``kind`` says which variables have
    curvature: all ("full"), all with a hundredth of it ("weak"), the states ("state"), or the discharge ("out").
    """
    n, hours = 3 * HOURS + 1, np.arange(HOURS)
    charge, discharge, state = hours, HOURS + hours, 2 * HOURS + np.arange(HOURS + 1)
    A, b = np.zeros((HOURS + 1, n)), np.zeros(HOURS + 1)
    A[0, state[0]], b[0] = 1.0, CAPACITY / 2
    A[hours + 1, state[1:]], A[hours + 1, state[:-1]] = 1.0, -1.0
    A[hours + 1, charge], A[hours + 1, discharge] = -EFFICIENCY, 1.0
    ub = np.concatenate([np.full(HOURS, 0.5), np.full(HOURS, 0.2), np.full(HOURS + 1, CAPACITY)])
    q, known, size = np.zeros(n), np.zeros(n), 0.01 if kind == "weak" else 1.0
    if kind in ("full", "weak", "state"):  # stay near half full
        q[state], known[state] = 0.2 * size, -0.1 * CAPACITY * size
    if kind in ("full", "weak"):
        q[charge] = q[discharge] = 0.1 * size
    if kind == "out":
        q[discharge] = 0.1
    prices = np.zeros((n, HOURS))
    prices[charge, hours], prices[discharge, hours] = 1.0, -1.0
    problem = pear.Problem(Q=np.diag(q), A=A, b=b, lb=np.zeros(n), ub=ub)
    return pear.Model(problem, cost_map=pear.CostMap(prices, known))


def pjm(kind: str, seed: int) -> Trial:
    """Return a trial with 300 days of PJM prices for training, and up to 200 days after them for the test.

    A larger seed selects later days.
    """
    days = np.load(pjm_file())
    X, Y = days["X"].astype(float), days["Y"].astype(float)
    end = int(len(X) * (0.5 + 0.1 * seed))
    before, after = slice(end - 300, end), slice(end, end + 200)
    return Trial(battery(kind), (X[before], Y[before]), (X[after], Y[after]))


def pjm_file() -> Path:
    """Return the path at which the file of PJM days is expected. The file may not exist."""
    return Path(os.environ.get("PEAR_DATA", "data")) / "battery" / "pjm_days.npz"


def synthetic_days(kind: str, seed: int) -> Trial:
    """Draw 300 days for training and 400 for the test.

    Prices depend on the hour, and are polynomials of degree 4 of the features.
    """
    random = np.random.default_rng(50 + seed)
    features, values = polynomial(random, 700, HOURS, 6, noise=0.2)
    level = 3 + np.sin(np.arange(HOURS) / HOURS * 4 * np.pi)
    return split(battery(kind), features, level * values, 300)


def factor_model(own_risk: bool, seed: int) -> Trial:
    """Draw portfolios of 20 assets with 3 factors and a cost of turnover.

    ``own_risk`` adds curvature for each asset.
    """
    n, k, random = 20, 3, np.random.default_rng(100 + seed)
    exposure, known = random.normal(size=(n, k)), np.concatenate([np.zeros(n + k), np.full(n, 0.01)])
    features, slopes = random.normal(size=(600, 5)), random.normal(size=(n, 5))
    returns = 0.05 * np.tanh(features @ slopes.T / 2) + 0.01 * features[:, :1] * features[:, 1:2]
    returns += 0.03 * random.normal(size=(600, n))
    Q = np.diag(np.concatenate([np.full(n, 0.05 * own_risk), np.full(k, 0.02), np.zeros(n)]))
    A = np.zeros((k + 1, 2 * n + k))
    A[:k, :n], A[:k, n : n + k], A[k, :n] = exposure.T, -np.eye(k), 1.0
    one, none = np.eye(n), np.zeros((n, k))
    G, held = np.vstack([np.hstack([one, none, -one]), np.hstack([-one, none, -one])]), np.full(n, 1 / n)
    lb = np.concatenate([np.zeros(n), np.full(k + n, -np.inf)])
    ub = np.concatenate([np.full(n, 0.3), np.full(k + n, np.inf)])
    problem = pear.Problem(Q=Q, A=A, b=[*np.zeros(k), 1.0], G=G, h=np.concatenate([held, -held]), lb=lb, ub=ub)
    model = pear.Model(problem, cost_map=pear.CostMap(-np.eye(2 * n + k, n), known))
    return split(model, features, returns, 300)


def low_rank(rank: int, seed: int) -> Trial:
    """Draw programs of 30 variables between 0 and 1 with 8 constraints, and a Q of low rank."""
    n, random = 30, np.random.default_rng(7 + seed)
    root, G = random.normal(size=(n, rank)), random.uniform(0, 1, (8, n))
    problem = pear.Problem(Q=0.5 * root @ root.T / rank, G=G, h=0.3 * G.sum(1), lb=np.zeros(n), ub=np.ones(n))
    features, values = polynomial(random, 600, n, 5, noise=0.5)
    return split(pear.Model(problem, cost_map=pear.CostMap(np.eye(n))), features, -values, 300)


def polynomial(random: np.random.Generator, count: int, n: int, p: int, noise: float) -> tuple[Array, Array]:
    """Draw features (count, p), and values (count, n) that are polynomials of degree 4 of the features.

    Each value is multiplied by a random number between 1 − ``noise`` and 1 + ``noise``.
    """
    slopes, features = random.integers(0, 2, (n, p)), random.normal(size=(count, p))
    values = ((features @ slopes.T / np.sqrt(p) + 3) ** 4 + 1) / 3.5**4
    return features, values * random.uniform(1 - noise, 1 + noise, (count, n))


def split(model: pear.Model, features: Array, values: Array, count: int) -> Trial:
    """Return a trial that trains on the first ``count`` samples and tests on the others."""
    return Trial(model, (features[:count], values[:count]), (features[count:], values[count:]))


KINDS = ("full", "weak", "state", "out")
TASKS: dict[str, Callable[[int], Trial]] = {
    **{f"PJM battery, {kind}": lambda seed, kind=kind: pjm(kind, seed) for kind in KINDS},
    **{f"battery, {kind}": lambda seed, kind=kind: synthetic_days(kind, seed) for kind in KINDS},
    "factors, turnover": lambda seed: factor_model(False, seed),
    "the same with own risk": lambda seed: factor_model(True, seed),
    "rank 5 of 30": lambda seed: low_rank(5, seed),
    "rank 20 of 30": lambda seed: low_rank(20, seed),
}


def curved_model(model: pear.Model, values: Array, rule: str) -> pear.Model:
    """Return the model with the curvature of a rule added to its Q; the model itself if the rule adds none.

    Args:
        model: the model.
        values: (N, k) the true values of the training samples, from which "auto" chooses λ.
        rule: the rule, such as "floor:0.1"; the docstring of the module explains the rules.
    """
    kind, _, times = rule.partition(":")
    if kind in ("mse", "nothing"):
        return model
    loss = pear.PEARLoss(model)
    loss.calibrate(values)
    lam, units = loss.least_curvature, torch.ones(model.problem.n).double() if loss.units is None else loss.units
    lam *= float(times or 1.0)
    if kind == "floor":
        S = Smoothing(0.0, units, floor=lam).added_curvature(model.problem)
    else:
        assert model.problem.Q is not None
        w, V = torch.linalg.eigh(units[:, None] * model.problem.Q * units)
        w = w if kind == "null" else torch.zeros_like(w)
        S = lam * (V * (w <= 1e-9 * w.max().clamp(min=1.0)).double()) @ V.mT
    if S is None:
        return model
    problem = problem_with_curvature(model.problem, S / units[:, None] / units)
    return pear.Model(problem, cost_map=model.cost_map)


def test_regret(job: tuple[str, str, int, int]) -> tuple[str, str, int, float]:
    """Do one training, and return its task, rule, seed and mean test regret. The job is (task, rule, seed, epochs)."""
    task, rule, seed, epochs = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trial = TASKS[task](seed)
    mean, size = trial.train[0].mean(0), trial.train[0].std(0) + 1e-9
    features, unseen = (torch.tensor((part[0] - mean) / size) for part in (trial.train, trial.test))
    values, count = torch.tensor(trial.train[1]), len(features) * 4 // 5
    network = torch.nn.Linear(features.shape[1], values.shape[1], dtype=torch.float64)
    model = curved_model(trial.model, trial.train[1], rule)
    injection = 0.0 if rule == "nothing" else 0.05
    loss = MSELoss(model) if rule == "mse" else pear.PEARLoss(model, smoothing=0.0, injection=injection)
    train, validation = (features[:count], values[:count]), (features[count:], values[count:])
    pear.fit(network, loss, train, validation, config=pear.FitConfig(seed=seed, max_epochs=epochs))
    with torch.no_grad():
        regret = pear.regret(trial.model, network(unseen), torch.tensor(trial.test[1]))
    return task, rule, seed, float(regret.mean())


def main() -> None:
    """Train all tasks by all rules and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    parser.add_argument("--epochs", type=int, default=100, help="most epochs of a training")
    given = parser.parse_args()
    tasks = [task for task in given.tasks if not task.startswith("PJM") or pjm_file().exists()]
    jobs = [(t, rule, seed, given.epochs) for t in tasks for seed in range(given.seeds) for rule in given.rules]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        found = {(task, rule, seed): regret for task, rule, seed, regret in pool.imap_unordered(test_regret, jobs)}
    print(f"| test regret | {' | '.join(given.rules)} |")
    print("|---|" + "---:|" * len(given.rules))
    for task in tasks:
        means = [np.mean([found[task, rule, seed] for seed in range(given.seeds)]) for rule in given.rules]
        print(f"| {task} | {' | '.join(f'{mean:.3g}' for mean in means)} |")


if __name__ == "__main__":
    main()
