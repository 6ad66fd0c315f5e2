# %% [markdown]
# # A portfolio on real prices
#
# Every month you look at a quarter of daily returns, forecast the next month, and hold the
# mean–variance portfolio that follows from the forecast. Returns are nearly noise, and a
# mean–variance portfolio bets on every error that the forecast makes. Does it help to train the
# forecaster on what its portfolios lose?
#
# The prices are real: 20 large US companies that come with the package skfolio (`pip install
# 'pear-lab[portfolio]'`). A CSV file of your own, one column a name, works as well.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import pear
from pear_lab.data import load_prices
from pear_lab.tasks.market import Evaluation, Forecaster, backtest, market_loss, split_windows

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

prices = load_prices(os.environ.get("PEAR_PRICES", "skfolio"))
prices = prices.last(900 if SMALL else 3780)  # fifteen years
split = split_windows(prices.returns())  # 70 % train, 10 % validate, the last 20 % test
names = len(prices.names)
print(prices)

# %% [markdown]
# ## Two trainings
#
# The forecaster reads 63 days and predicts 21. Means and covariances follow from its days, and
# from them the portfolio of largest μᵀw − ½γ wᵀΣw without short positions, γ = 2. One training
# minimises the squared error of the days. The other minimises regret: how much less utility the
# portfolio has under the returns that came than the best one. Its gradient goes through both
# the means and the covariances, and is exact.
#
# First weights, batches and the rule to stop are the same, and so is the number by which
# weights are chosen: the regret on the validation months.

# %%
task = pear.tasks.portfolio(names, risk_aversion=2.0)
paper = {"learning_rate": 1e-3, "batch_size": 64, "clip_norm": 1.0, "halve_after": 3}
config = pear.FitConfig(max_epochs=2 if SMALL else 20, check_every=1, **paper)
validation = Evaluation(task, split.validation.days)
test = split.rebalancing  # one decision every 21 days
judge = Evaluation(task, test.days)

train, held_out = ((part.known, part.days) for part in (split.train, split.validation))
weights = {}
for name, method in (("squared error", "mse"), ("PEAR", "pear-exact")):
    torch.manual_seed(0)
    model = Forecaster(assets=names)
    loss, metric = market_loss(method, task), validation.normalized_regret
    history = pear.fit(model, loss, train, held_out, metric, config)
    weights[name] = judge.weights(model(test.known).detach())
    print(f"{name}: {history.epochs} epochs, the best after {history.best.epoch}")
weights["equal weights"] = torch.full_like(weights["PEAR"], 1 / names)

# %% [markdown]
# ## What the portfolios would have earned
#
# Each portfolio is held for 21 days and then rebalanced; 0.1 % of what is traded is lost. Equal
# weights need no forecast, and are what a forecaster has to beat.

# %%
days = test.days[:, :, -21:].transpose(1, 2).reshape(-1, names)
results = {name: backtest(held, days, ahead=21) for name, held in weights.items()}
table = pd.DataFrame({name: result.summary() for name, result in results.items()}).T
lost = {name: judge.outcome_of(held) for name, held in weights.items()}
table.insert(0, "regret", [outcome.normalized for outcome in lost.values()])
table.round(3)

# %%
figure, axes = plt.subplots()
first = int(test.starts[0]) + 63 + 1  # a return is of the day after its price
dates = prices.dates[first : first + len(days)]
for name, result in results.items():
    axes.plot(dates, result.value, label=name)
axes.set(title="What became of one dollar in the test years", ylabel="$")
axes.legend()

# %% [markdown]
# ## Is it luck?
#
# One history is one draw. Months, at least, can be paired: in each of them, how much more
# utility (in hundredths of a percent, basis points) has one portfolio than the other? An
# interval that contains zero means that these months cannot tell the two apart, however far the
# lines above are.

# %%
for other in ("squared error", "equal weights"):
    gained = 1e4 * (lost[other].regret - lost["PEAR"].regret).numpy()
    margin = 1.96 * gained.std(ddof=1) / np.sqrt(len(gained))
    print(f"PEAR against {other}: {gained.mean():+.1f} ± {margin:.1f} basis points a day")

# %% [markdown]
# ## What was gained
#
# Nothing that could be shown. Both forecasters lose most of what perfect foresight would earn,
# and equal weights, which forecast nothing, did better than both. That is the nature of
# returns, and the reason to keep such a row in every table. Read a gain on one history with the
# interval beside it, and do not expect here what the other tutorials show. [Portfolios on
# prices](../portfolio.md) has the paper's experiment, with five seeds and 93 names: there the
# regret falls by ten points, and the interval contains zero as well.
