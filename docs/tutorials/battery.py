# %% [markdown]
# # A battery that trades on forecast prices
#
# You run a battery of 4 MWh. Every noon you forecast the 24 prices of tomorrow's power market,
# solve a small CVXPY model for the hours to charge and to discharge, and send the bids. You
# have the weather forecast and more than two years of prices, and a linear model that predicts
# each price as well as it can. The decisions, however, do not depend on how high the prices
# are, but on which hours are cheaper than which others.
#
# This tutorial takes the CVXPY model as it is and trains the same linear model on the money
# that its bids lose.

# %%
import os

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

# %% [markdown]
# ## The data
#
# So that the page runs anywhere, the market is made up, but in the way that markets work: the
# dearest power plant that is needed sets the price, so that prices rise ever more steeply in
# what wind and sun leave over. A row of `X` is what you know at noon; a row of `prices`, in
# €/MWh, is what came true.

# %%
rng = np.random.default_rng(0)
days, hour = (120 if SMALL else 900), np.arange(24)
season = np.cos(2 * np.pi * np.arange(days) / 365)  # 1 in midwinter
wind = rng.beta(1.5, 2.5, days)
sun = (0.5 - 0.35 * season) * rng.uniform(0.3, 1.0, days)
cold = 0.5 + 0.4 * season + rng.normal(0, 0.15, days)
weekend = (np.arange(days) % 7 >= 5).astype(float)

morning, noon, evening = (np.exp(-(((hour - peak) / 3) ** 2)) for peak in (8, 13, 19))
demand = 45 + 12 * morning + 16 * evening
demand = demand + np.outer(cold, 8 + 6 * evening) - np.outer(weekend, 6 + 8 * morning)
left_over = demand - np.outer(wind, 26 + 6 * np.sin(hour / 4)) - np.outer(sun, 42 * noon)
prices = 25 + 40 * np.exp((left_over - 52) / 12) * rng.lognormal(0, 0.15, (days, 24))

X = np.column_stack([wind, sun, cold, weekend])
train, test = slice(0, days * 2 // 3), slice(days * 2 // 3, days)

# %% [markdown]
# ## The model you already have
#
# Nothing in it is special. `price` is the one parameter that has to be forecast.

# %%
price = cp.Parameter(24, name="price")
charge, discharge, level = (
    cp.Variable(24, name=name, nonneg=True) for name in ("charge", "discharge", "level")
)
before = cp.hstack([0, level[:-1]])
wear = 4.0  # € for each MWh through the battery
plan = cp.Problem(
    cp.Minimize(price @ (charge - discharge) + wear * cp.sum(discharge)),
    [level == before + 0.92 * charge - discharge, charge <= 1, discharge <= 1, level <= 4],
)

m = pear.from_cvxpy(plan, [price])
print(m)

# %% [markdown]
# ## Two trainings
#
# The same linear model, the same days, the same way to stop; only the loss differs. The last
# fifth of the training days says when to stop, the test days come after all of them.

# %%
forecasts = {}
for name, loss in (("squared error", "mse"), ("PEAR", "pear")):
    model = pear.DecisionRegressor(m, loss=loss, max_epochs=20 if SMALL else 300)
    forecasts[name] = model.fit(X[train], prices[train]).predict(X[test])

# %% [markdown]
# `pear.regret` is the money lost on each day: what the battery would have earned had the prices
# been known, less what it earned with the forecast.

# %%
best = -pear.solve(m, prices[test]).value.numpy()
print(f"{'':15}{'error of a price':>18}{'earned a day':>15}{'lost a day':>13}")
lost = {}
for name, forecast in forecasts.items():
    lost[name] = pear.regret(m, forecast, prices[test]).numpy()
    error, earned = np.sqrt(np.mean((forecast - prices[test]) ** 2)), best - lost[name]
    print(f"{name:15}{error:16.1f} €{earned.mean():13.1f} €{lost[name].mean():11.1f} €")
print(f"{'perfect':15}{0:16.1f} €{best.mean():13.1f} €{0:11.1f} €")

# %%
figure, axes = plt.subplots()
for name, money in lost.items():
    axes.plot(money.cumsum(), label=f"{name}: {money.sum():,.0f} €")
axes.set(title="What each forecaster has lost", xlabel="test day", ylabel="€, summed up")
axes.legend()

# %% [markdown]
# ## A day from near
#
# The day on which PEAR gains most. Neither forecaster finds the height of the prices. The one
# that was trained on money finds their order: cheap at noon, dear in the evening.

# %%
day = int(np.argmax(lost["squared error"] - lost["PEAR"]))
figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7.5, 4.6))
for name, forecast in forecasts.items():
    above.plot(hour, forecast[day], label=f"forecast, {name}")
    bid = m.decision(pear.solve(m, forecast[day][None]).x[0])
    below.step(hour, bid["discharge"] - bid["charge"], where="mid")
above.plot(hour, prices[test][day], color="black", linewidth=1, label="came true")
above.set(title="Prices, €/MWh")
below.set(title="What was sold (above zero) and bought, MW", xlabel="hour")
above.legend()

# %%
gained = lost["squared error"] - lost["PEAR"]
margin = 1.96 * gained.std() / np.sqrt(len(gained))
print(f"PEAR gains {gained.mean():.1f} ± {margin:.1f} € a day (95 %, {len(gained)} test days),")
print(f"{gained.sum() / lost['squared error'].sum():.0%} of what the squared error gives away.")

# %% [markdown]
# PEAR's forecasts of the prices are a little worse, and its bids are better: the linear model
# cannot follow the prices, and has to choose what it gets right. If other people use your
# forecasts for other decisions, keep both.
