# %% [markdown]
# # Unit commitment: predicted demand, and a price for what is missing
#
# Three power plants are switched on or off a day ahead, for four blocks of six hours. Nobody
# knows tomorrow's demand: it is forecast. What the schedule lacks is bought on the balancing
# market at a high price; what it has too much is sold there for little. A forecast of the mean
# is therefore not the best one, and which forecast is depends on the plants. We train a
# forecaster on its squared error and on what its schedules lose, and compare.

# %%
import os

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))
BLOCKS, PLANTS = 4, 2 if SMALL else 3

# %% [markdown]
# ## The problem
#
# A plant that is on delivers between its least and its greatest output. Switching on costs
# extra. `demand` is a parameter of CVXPY, and stands on the right-hand side of a constraint.

# %%
least, most = np.array([30.0, 15.0, 5.0])[:PLANTS], np.array([60.0, 40.0, 30.0])[:PLANTS]
fuel = np.array([20.0, 35.0, 60.0])
standby, start = np.array([200.0, 150.0, 60.0]), np.array([900.0, 400.0, 100.0])

demand = cp.Parameter(BLOCKS, name="demand")
on = cp.Variable((PLANTS, BLOCKS), name="on", boolean=True)
output = cp.Variable((PLANTS, BLOCKS), name="output", nonneg=True)
switched = cp.Variable((PLANTS, BLOCKS), name="switched", nonneg=True)

expenses = (
    fuel[:PLANTS] @ cp.sum(output, 1)
    + standby[:PLANTS] @ cp.sum(on, 1)
    + start[:PLANTS] @ cp.sum(switched, 1)
)
balance = cp.sum(output, 0) == demand
plan = cp.Problem(
    cp.Minimize(expenses),
    [
        balance,
        output <= cp.multiply(np.tile(most[:, None], BLOCKS), on),
        output >= cp.multiply(np.tile(least[:, None], BLOCKS), on),
        switched[:, 0] >= on[:, 0],
        switched[:, 1:] >= on[:, 1:] - on[:, :-1],
    ],
)

# %% [markdown]
# The recourse is declared with the model: a megawatt too little costs 150, one too much 5. The
# report says what was understood.

# %%
m = pear.from_cvxpy(plan, [demand], recourse={balance: (150.0, 5.0)})
print(m.report)

# %% [markdown]
# ## Days
#
# Temperature, wind, weekday and the like: four features, from which demand follows in its own
# way in every block. It is skewed: now and then far more is needed than expected, above all on
# days with a large first feature.

# %%
rng = np.random.default_rng(0)
days = 40 if SMALL else 300
X = rng.normal(size=(days, 4))
shape = 20 / (1 + np.exp(X[:, :1])) + 1.5
profile = 50 + 25 * np.sin(np.linspace(0, np.pi, BLOCKS))
expected = profile * np.exp(X @ rng.normal(size=(4, BLOCKS)) / 10)
Y = expected * rng.gamma(shape, 1 / shape, (days, BLOCKS))
train, validation, test = np.split(np.arange(days), [2 * days // 5, 4 * days // 5])

# %% [markdown]
# ## Two forecasters
#
# Both are linear, and both keep the weights with which the schedules of the validation days
# lose least. They differ in what they are trained on. PEAR begins with the weights of the
# squared error and gives them up only for a gain that the validation days can tell from luck;
# that is why there are as many of them as of training days. Training takes on and off as shares
# between 0 and 1, and smooths the problem; of a problem with many ties, as here, a hundred
# times the smoothing that `pear` picks is faster to solve.

# %%
settings = {"max_epochs": 4 if SMALL else 40, "batch_size": 120, "learning_rate": 0.03}
held_out = (X[validation], Y[validation])
by_error = pear.DecisionRegressor(m, loss="mse", **settings)
by_regret = pear.DecisionRegressor(m, smoothing="auto*100", **settings)
for model in (by_error, by_regret):
    model.fit(X[train], Y[train], held_out)

# %% [markdown]
# What they lose on the test days, against schedules that had known the demand:

# %%
lost = {
    name: pear.regret(m, model.predict(X[test]), Y[test]).numpy()
    for name, model in (("MSE", by_error), ("PEAR", by_regret))
}
for name, values in lost.items():
    print(f"{name}: {values.mean():,.0f} a day")
print(f"PEAR loses less on {np.mean(lost['PEAR'] < lost['MSE']):.0%} of the days")

# %% [markdown]
# ## Where the difference comes from
#
# The forecaster that was trained on regret asks for more than the mean, because a missing
# megawatt costs more than one too many, and the more so where demand is uncertain. Decisions
# come back by the names of the CVXPY problem.

# %%
order = np.argsort(X[test][:, 0])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
for name, model in (("MSE", by_error), ("PEAR", by_regret)):
    left.plot(np.sort(X[test][:, 0]), model.predict(X[test]).mean(1)[order], label=name)
    right.plot(np.cumsum(lost[name]) / 1000, label=name)
left.scatter(X[test][:, 0], Y[test].mean(1), s=8, color="0.7", label="came true")
left.set(xlabel="first feature", ylabel="mean demand of a day, MW", title="Forecasts")
right.set(xlabel="test day", ylabel="lost in all, thousands", title="Regret, added up")
left.legend()
right.legend()

# %%
schedule = m.decision(by_regret.decide(X[test]))
print("plants on, first test day:")
print(schedule["on"][0].numpy().astype(int))
