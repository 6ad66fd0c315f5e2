"""Budget allocation: advertising on the websites that reach most users, whose click rates are predicted."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import DataError
from pear_lab.tasks.public.choice_forecasters import ChoiceForecaster, choice_indicator_rows, choice_problem
from pear_lab.tasks.public.drawn_samples import Array, cut_drawn_samples
from pear_lab.tasks.public.public_task import Drawing, PublicTask

WEBSITES, USERS, BUDGET = 5, 10, 2
_FAKE, _FEATURES = 10, 12
_SIZES = (80, 40, 500)
_SETS = choice_indicator_rows(list(combinations(range(WEBSITES), BUDGET)), WEBSITES)


def budget_reach(rates: Tensor) -> Tensor:
    """Return the expected number of users that each set of two of five websites reaches.

    A set reaches a user u who clicks on at least one website w of the set. If the user clicks on w with the probability
    rate_wu, the expected number is ``Σ_u (1 − Π_w (1 − rate_wu))``.

    Args:
        rates: (B, 5, 10) the probability that each of ten users clicks on each of five websites.

    Returns:
        The expected numbers (B, 10) of the ten sets.

    Example:
        >>> budget_reach(torch.full((1, 5, 10), 0.5))[0, 0].item()
        7.5
    """
    chosen = _SETS.to(rates)[None, :, :, None]  # (1, sets, websites, 1)
    return (1 - (1 - chosen * rates[:, None]).prod(2)).sum(2)


def _budget_reach_of_logits(logits: Tensor) -> Tensor:
    """Return ``budget_reach`` of the click rates that are the sigmoid of logits (B, 5, 10)."""
    return budget_reach(torch.sigmoid(logits))


def budget_forecaster(features: int, values: int) -> nn.Module:
    """Make a forecaster of the number of users that each set of websites reaches.

    A linear model that all websites share predicts the click rates of all users.

    Args:
        features: the number of features of a website.
        values: ignored; the number of sets is fixed.
    """
    return ChoiceForecaster(features, USERS, _budget_reach_of_logits)


def _draw_budget_rates(random: np.random.RandomState, websites: int) -> Array:
    """Draw click rates (websites, users). Few of them are large. Websites and users differ in their mean rate."""
    level = random.normal(-2.0, 1.0, (websites, 1)) + random.normal(0.0, 1.0, (1, USERS))
    rates: Array = 1 / (1 + np.exp(-level - random.normal(0.0, 1.0, (websites, USERS))))
    return rates


def _draw_budget_instances(random: np.random.RandomState, rates: Array) -> Drawing:
    """Draw instances of five websites, and features that are random mixtures of their rates and of irrelevant rates.

    Args:
        random: the generator of the instances and the features.
        rates: (websites, users) the click rates of all websites.
    """
    count = sum(_SIZES)
    chosen = rates[np.array([random.choice(len(rates), WEBSITES, replace=False) for _ in range(count)])]
    others = random.choice(rates.reshape(-1), (count, WEBSITES, _FAKE))
    mixing = random.normal(size=(USERS + _FAKE, _FEATURES)) / np.sqrt(USERS)
    features = np.concatenate([chosen, others], axis=2) @ mixing
    values = budget_reach(torch.from_numpy(chosen)).numpy()
    seen = features[: _SIZES[0]].reshape(-1, _FEATURES)
    return Drawing(
        choice_problem(len(_SETS), "max"), cut_drawn_samples((features - seen.mean(0)) / seen.std(0), values, _SIZES)
    )


def draw_budgets(seed: int) -> Drawing:
    """Draw the click rates of 400 websites, and instances of five of the websites each."""
    random = np.random.RandomState(seed)
    return _draw_budget_instances(random, _draw_budget_rates(random, websites=400))


def load_budgets(path: str | Path, seed: int = 0) -> Drawing:
    """Draw instances from click rates in a file, such as those of Yahoo's data set R3.

    Args:
        path: an ``.npz`` file with ``rates`` (websites, 10), numbers from 0 to 1 of at least five websites.
        seed: the seed of the instances and the features.

    Raises:
        DataError: the file has no such array.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rates = np.asarray(arrays["rates"], dtype=np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} must be an .npz file with an array 'rates': {error}") from error
    if rates.ndim != 2 or len(rates) < WEBSITES or rates.shape[1] != USERS:
        raise DataError(f"{path}: rates must have shape (at least {WEBSITES}, {USERS}); got {rates.shape}")
    if not ((rates >= 0) & (rates <= 1)).all():
        raise DataError(f"{path}: rates must be numbers from 0 to 1; got {rates.min()} to {rates.max()}")
    return _draw_budget_instances(np.random.RandomState(seed), rates)


BUDGET_ALLOCATION = PublicTask(
    name="budget-allocation",
    title="Budget allocation",
    origin=(
        "Wilder, Dilkina & Tambe 2019, arXiv 1809.05504; as in Shah, Wang, Wilder, Perrault & Tambe 2022, arXiv "
        "2203.16067 (web advertising)"
    ),
    protocol=(
        "Choose 2 of 5 websites so that most of 10 users click somewhere. The value of a set is submodular, no sum "
        "over websites; a cost for each website could not express it. The problem is therefore a choice among the 10 "
        "sets, with a cost for each set: a linear program, and all methods apply. The forecaster predicts click rates "
        "by one linear model for all websites, and computes what each set reaches; the squared error is that of the "
        "sets' values, not of the rates as in the origin. The origin draws rates from a data set of Yahoo that cannot "
        "be had here, and has features that are random mixtures of rates and of numbers that do not matter; ours are "
        "drawn in the same way from rates of our own. 80 instances train, 40 choose, 500 test. load_budgets reads "
        "rates of your own. Published numbers belong to other rates and are not comparable."
    ),
    draw=draw_budgets,
    forecaster=budget_forecaster,
)  # fmt: skip
