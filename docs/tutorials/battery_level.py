# %% [markdown]
# # A battery with a level this morning, and a boolean for every hour
#
# You run a battery of 4 MWh. Every noon you forecast the prices of tomorrow's power market and
# plan when to charge and when to discharge. Two things make your model what it is. The inverter
# runs in one direction at a time, so that there is a boolean for every hour. And the battery is
# never empty in the morning: it starts with what yesterday has left, which is different every
# day, and which you *know* when you plan.
#
# A known level needs no forecast, and no rule for what happens when a forecast of it is wrong.
# It is named in `known=`, and its values come with every call.

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
# The market is made up as in [the first tutorial on a battery](battery.md): the dearest power
# plant that is needed sets the price. There are 12 blocks of two hours. A row of `X` is what
# you know at noon, a row of `prices`, in €/MWh, what came true. `levels` are those of past
# mornings, from the log of the battery.

# %%
rng = np.random.default_rng(0)
days, T = (40 if SMALL else 500), 12
hour = 2.0 * np.arange(T)
season = np.cos(2 * np.pi * np.arange(days) / 365)  # 1 in midwinter
wind = rng.beta(1.5, 2.5, days)
sun = (0.5 - 0.35 * season) * rng.uniform(0.3, 1.0, days)
cold = 0.5 + 0.4 * season + rng.normal(0, 0.15, days)
morning_peak, noon, evening = (np.exp(-(((hour - peak) / 3) ** 2)) for peak in (8, 13, 19))
demand = 45 + 12 * morning_peak + 16 * evening + np.outer(cold, 8 + 6 * evening)
left_over = demand - np.outer(wind, 26 + 6 * np.sin(hour / 4)) - np.outer(sun, 42 * noon)
prices = 25 + 40 * np.exp((left_over - 52) / 8) * rng.lognormal(0, 0.1, (days, T))

X = np.column_stack([wind, sun, cold])
levels = rng.uniform(0, 4, days)
train, test = slice(0, days * 3 // 5), slice(days * 3 // 5, days)

# %% [markdown]
# ## The model you already have
#
# `price` has to be forecast, and `morning` is known. What is left in the evening is worth
# 50 €/MWh, so that a day does not end with an empty battery at any price.

# %%
price, morning = cp.Parameter(T, name="price"), cp.Parameter(name="morning", nonneg=True)
charge, discharge, level = (
    cp.Variable(T, name=name, nonneg=True) for name in ("charge", "discharge", "level")
)
up = cp.Variable(T, name="up", boolean=True)
rows = [
    level == cp.hstack([morning, level[:-1]]) + 0.9 * charge - discharge / 0.9,
    level <= 4,
    charge <= 2 * up,
    discharge <= 2 * (1 - up),
]
plan = cp.Problem(cp.Minimize(price @ (charge - discharge) - 50 * level[-1]), rows)

# %% [markdown]
# ## Train and score
#
# Two forecasters are trained, one on the squared error of the prices and one on what its plans
# lose, each with the level of every morning. Training uses the relaxation, in which a block may
# mix charging and discharging; validation, `decide` and `score` use the booleans.

# %%
m = pear.from_cvxpy(plan, predicted=[price], known=[morning])
options = {"max_epochs": 4 if SMALL else 200, "validation_fraction": 0.25}
past = {"known": levels[train]}
squared = pear.DecisionRegressor(m, loss="mse", **options).fit(X[train], prices[train], **past)
trained = pear.DecisionRegressor(m, **options).fit(X[train], prices[train], **past)
for name, model in (("squared error", squared), ("decisions", trained)):
    share = -model.score(X[test], prices[test], known=levels[test])
    print(f"trained on the {name}: {share:.2%} of the best income is lost")

# %% [markdown]
# ## The same day, two mornings
#
# What is known changes the plan. Tomorrow's forecast is the same for an empty and for a full
# battery; `decide` and `solve` take the level of the morning beside it. In operation it is
# what the plan of the day before has left, `m.decision(z)["level"][:, -1]`.

# %%
forecast = trained.predict(X[test][:1])
mornings = [0.5, 4.0]
plans = m.decision(pear.solve(m, np.repeat(forecast, 2, axis=0), known=mornings).x)
for start, levels_of_day in zip(mornings, plans["level"], strict=True):
    plt.step(hour + 2, levels_of_day, where="pre", label=f"{start} MWh this morning")
plt.xlabel("hour")
plt.ylabel("MWh in the battery")
plt.legend()
plt.show()

# %% [markdown]
# ## What it took, and what others write
#
# Beside the CVXPY model PEAR takes five lines: `import pear`, `from_cvxpy`, `fit`, `score` and
# `decide`, with `known=` in the last three. Without `known=`, the level would have to be
# "predicted", with a price for every unit by which its forecast is wrong. With
# [cvxpylayers](https://github.com/cvxgrp/cvxpylayers) the level is a second parameter of the
# layer. A layer has no booleans, so that a second model without them is trained:
#
# ```python no-run
# share = cp.Variable(T, bounds=[0, 1])  # in place of the booleans
# relaxed_plan = ...  # the rows and the objective again
# variables = [charge, discharge, level]
# layer = CvxpyLayer(relaxed_plan, parameters=[price, morning], variables=variables)
# net = torch.nn.Linear(3, T)
# optimizer = torch.optim.Adam(net.parameters())
# for epoch in range(200):
#     for some in torch.randperm(300).split(32):
#         bought, sold, end = layer(net(X[some]), levels[some])
#         cost = (prices[some] * (bought - sold)).sum(1) - 50 * end[:, -1]
#         optimizer.zero_grad()
#         cost.mean().backward()
#         optimizer.step()
# ```
#
# These are 13 lines, without the second model, the scaling of features, validation, early
# stopping, and the loop that sets both parameters of the model with booleans for every new day
# and solves it. In PyEPO a data set and its losses solve one `optModel` for all rows, and a row
# changes its costs alone: a level that differs by row has no place there.
