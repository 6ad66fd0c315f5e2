# %% [markdown]
# # Diagnosing a LightGBM forecaster
#
# A cold store buys its power by the hour. LightGBM forecasts the 24 prices of tomorrow, a
# linear program decides when the compressors run, and everybody is content: the forecast
# explains most of the variance. Then somebody asks what its errors cost. Which hours? Which
# kind of day? And would it pay to do better?
#
# `pear.diagnose` answers from three tables: what was forecast, what came true, and the problem.
# The forecaster need not be ours, and no gradient is needed.

# %%
import os

import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

# %% [markdown]
# ## The store
#
# Cold is lost at the same rate all day; 0.4 MW of compressor power replaces it, and the
# compressors have 1 MW. The store may fall behind by 2 MWh and be cooled ahead by 4 MWh. At the
# end of the day it has to be as cold as in the beginning.

# %%
used = np.tril(np.ones((24, 24)))  # power bought up to each hour
need = 0.4 * np.arange(1, 25)
limits = pear.Problem(
    A=np.ones((1, 24)),
    b=[need[-1]],
    G=np.concatenate([used, -used]),
    h=np.concatenate([need + 4, 2 - need]),
    lb=0.0,
    ub=1.0,
)
names = [f"{h:02}:00" for h in range(24)]
store = pear.Model(limits, variables=names)

# %% [markdown]
# ## The forecaster
#
# Prices of a made-up market: the dearest plant that is needed sets them, wind and sun push it
# out. One row of the table is one hour of one day, with the weather forecast, the weekend, the
# hour, and yesterday's price of the same hour.

# %%
rng = np.random.default_rng(0)
days, hour = (90 if SMALL else 900), np.arange(24)
date = pd.date_range("2022-01-01", periods=days)
season = np.cos(2 * np.pi * date.day_of_year.to_numpy() / 365)
wind, sun = rng.beta(1.5, 2.5, days), (0.5 - 0.35 * season) * rng.uniform(0.3, 1.0, days)
weekend = (date.day_of_week >= 5).astype(float)
bump = {peak: np.exp(-(((hour - peak) / 3) ** 2)) for peak in (8, 13, 19)}
load = 46 + 11 * bump[8] + 15 * bump[19]
load = load + np.outer(5 * season, 1 + bump[19]) - np.outer(weekend, 6 + 7 * bump[8])
left_over = load - np.outer(wind, np.full(24, 26)) - np.outer(sun, 42 * bump[13])
prices = 20 + 40 * np.exp((left_over + rng.normal(0, 2, (days, 24)) - 50) / 11)

table = pd.DataFrame({"hour": np.tile(hour, days), "yesterday": np.roll(prices, 1, 0).ravel()})
for name, daily in (("wind", wind), ("sun", sun), ("weekend", weekend), ("season", season)):
    table[name] = np.repeat(daily, 24)
train = slice(1, days * 2 // 3)  # the first day has no yesterday
test = slice(days * 2 // 3, days)


def rows(part):
    """The 24 rows of each of some days."""
    return table[24 * part.start : 24 * part.stop]


rounds = 20 if SMALL else 200
trees = {"num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1}
model = lgb.LGBMRegressor(n_estimators=rounds, **trees).fit(rows(train), prices[train].ravel())
forecast = model.predict(rows(test)).reshape(-1, 24)
true = prices[test]
squared = (forecast - true) ** 2
print(f"R² {1 - squared.mean() / true.var():.2f} on the {len(true)} test days")

# %% [markdown]
# ## The diagnosis
#
# Groups are labels, one for each day; dates would become months or weekdays.

# %%
kind = np.where(weekend[test] > 0, "weekend", "weekday")
report = pear.diagnose(store, forecast, true, groups=pd.Series(kind, name="kind of day"))
print(report)

# %%
columns = ["kind of day", "samples", "mean_regret", "normalized_regret", "dearest_value"]
report.by_group()[columns].round(3)

# %% [markdown]
# Now the picture that a table of errors does not show: where the forecast is wrong, and where
# being wrong costs money. If squared error were what matters, the two would look alike.

# %%
cost = np.nansum(report.attribution, 0)
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7.5, 4.6))
above.bar(hour, squared.sum(0) / squared.sum() * 100, color="C0")
above.set(title="Where it is wrong: share of the squared error by hour, %")
below.bar(hour, cost / report.regret.sum() * 100, color="C1")
below.set(title="Where it costs: share of the money lost, %", xlabel="hour")

# %% [markdown]
# What each hour costs adds up to what was lost, to the last digit that a float64 has:

# %%
print(f"parts {cost.sum():.6f} €, regret {report.regret.sum():.6f} €")
worst = report.worst(3)
for day, lost, why in zip(worst.index, worst["regret"], worst["why"]):
    print(f"{date[test][day]:%d %B %Y}, {lost:.1f} €: {why}")

# %% [markdown]
# For whoever pays the bill, all of it as one page, which opens without a network:

# %%
print(f"{report.save_html('store.html').stat().st_size / 1024:.0f} kB")

# %% [markdown]
# ## Act on it
#
# The trees go on from where they are, now boosted on regret (`pear.boosting.objective`), with
# the last fifth of the training days to stop by. Nothing else about the forecaster changes.

# %%
known = slice(1, int(days * 2 / 3 * 0.8))
held_out = slice(known.stop, train.stop)
start = lgb.LGBMRegressor(n_estimators=rounds, **trees)
start.fit(rows(known), prices[known].ravel())
learn, check = (
    lgb.Dataset(rows(part), prices[part].ravel(), init_score=start.predict(rows(part)))
    for part in (known, held_out)
)
boosted = lgb.train(
    {"objective": pear.boosting.objective(store), **trees},
    learn,
    rounds,
    [check.set_reference(learn)],
    feval=pear.boosting.metric(store),
    callbacks=[lgb.early_stopping(20, verbose=False)],
)
better = (start.predict(rows(test)) + boosted.predict(rows(test))).reshape(-1, 24)

# %%
after = pear.diagnose(store, better, true, groups=report.groups)
print(*report.compare(after, names=("the squared error", "boosted on regret")), sep="\n")
gained = report.regret - after.regret
margin = 1.96 * gained.std() / np.sqrt(len(gained))
before = report.regret.mean()
print(
    f"Gained: {gained.mean():.2f} ± {margin:.2f} of {before:.2f} € lost a day (95 % interval)."
)

# %% [markdown]
# ## What was gained
#
# Nothing to speak of, and the reason can be looked up here, because the market is made up: how
# much would a forecaster lose that knew everything but the noise?

# %%
expected = 20 + 40 * np.exp((left_over[test] - 50) / 11 + (2 / 11) ** 2 / 2)
floor = pear.regret(store, expected, true).mean()
print(f"It would lose {floor:.2f} € a day; LightGBM loses {before:.2f} €.")

# %% [markdown]
# The trees follow the prices well, and what is left is mostly noise: no loss takes that away.
# Where a forecaster cannot follow the truth, as the linear models of [the battery](battery.md)
# and [the knapsack](knapsack.md), it has to choose what to get right, and there training on
# decisions pays. The diagnosis has told you something all the same: its large errors, in the
# evening, are nearly free, and whoever wants to improve it should look at the small ones of the
# night.
