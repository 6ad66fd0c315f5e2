# %% [markdown]
# # Shortest paths: two forecasters, and which of their errors matter
#
# A courier crosses a town of 5 × 5 crossings every morning, from one corner to the other. How
# long each of the 40 roads will take is forecast from five numbers (weather, weekday, works,
# …); the fastest way under the forecast is driven, and takes the time that it takes. You have a
# thousand mornings of history and a linear model.
#
# This page trains the model twice, on the error of the forecast and on the minutes lost, and
# asks of both which of their errors cost anything.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

task = pear.tasks.shortest_path((5, 5))
problem = task.problem
# Times grow with a power of the features, and are noisy.
known, unseen = (60, 20) if SMALL else (1000, 500)
X, C = task.samples(known + unseen, degree=8, noise=0.5, seed=0)
X, C, test_X, test_C = X[:known], C[:known], X[known:], C[known:]
problem

# %% [markdown]
# ## Train twice
#
# The same first weights, the same mornings, the same rule to stop: the last fifth of the
# training mornings is held out, and the weights that do best there are kept. The squared error
# is stopped by the squared error, PEAR's loss by the regret of the routes.

# %%
losses = {"squared error": torch.nn.MSELoss(), "PEAR": pear.PEARLoss(problem)}
config = pear.FitConfig(max_epochs=10 if SMALL else 300)
forecasts = {}
for name, loss in losses.items():
    torch.manual_seed(0)
    model = torch.nn.Linear(5, problem.n)
    history = pear.fit(model, loss, (X, C), config=config)
    forecasts[name] = model(test_X).detach()
    print(f"{name}: {history.epochs} epochs, the best after {history.best.epoch}")

# %%
print(f"{'':15}{'squared error':>15}{'regret':>10}{'mornings without loss':>25}")
for name, forecast in forecasts.items():
    error, lost = (forecast - test_C).square().mean(), pear.regret(problem, forecast, test_C)
    share = pear.normalized_regret(problem, forecast, test_C)
    print(f"{name:15}{error:15.2f}{share:10.1%}{(lost < 1e-6).double().mean():25.0%}")

# %% [markdown]
# As forecasts the two are about equally wrong, and yet one of them drives much better. It must
# be wrong in another way.
#
# ## Which errors matter
#
# `pear.diagnose` takes any forecast with the truth, whoever made it. It splits the error in
# two: the *tangent* part moves decisions on the way from the truth to the forecast, the
# *normal* part does not. If every road takes ten minutes longer than forecast, for instance,
# the fastest way stays the fastest way.

# %%
# The crossings that each road joins, and the same problem with names.
tail, head = (np.abs(problem.A.numpy().T - sign).argmin(1) for sign in (1, -1))
town = pear.Model(problem, variables=[f"road {a}-{b}" for a, b in zip(tail, head)])
reports = {name: pear.diagnose(town, forecast, test_C) for name, forecast in forecasts.items()}
said = reports["squared error"].compare(reports["PEAR"], ("the squared error", "PEAR"))
print(*said, sep="\n")

# %% [markdown]
# Nearly all of the error does not matter to either of them. What differs is the small rest that
# does, and it shrinks as the loss does.
#
# ## Where the minutes are lost
#
# The report also says what each road's error costs: it follows the decision from the truth to
# the forecast, and each road gets its part of the regret. The parts add up, morning by morning.

# %%
for name, report in reports.items():
    apart = np.abs(report.attribution.sum(1) - report.regret).max()
    print(f"{name}: the parts differ from the regret by at most {apart:.0e} minutes")

# %%
node = np.stack(np.divmod(np.arange(25), 5)[::-1], 1)  # column and row of each crossing
figure, axes = plt.subplots(1, 2, figsize=(7.5, 4.2))
for place, (name, report) in enumerate(reports.items()):
    minutes = np.nansum(report.attribution, 0)
    for road, width in enumerate(minutes):
        ends = node[[tail[road], head[road]]].T
        axes[place].plot(*ends, color="lightgrey", linewidth=1, zorder=0)
        axes[place].plot(*ends, color=f"C{place}", linewidth=max(width, 0) / 6)
    axes[place].set(title=f"{name}: {minutes.sum():.0f} minutes lost", aspect="equal")
    axes[place].invert_yaxis()
    axes[place].axis("off")
figure.suptitle("Minutes lost to errors of each road, as its width", x=0.02, ha="left")

# %% [markdown]
# ## Morning by morning
#
# The report names the mornings that lost most, and why:

# %%
worst = reports["squared error"].worst(5)
for morning, lost, why in zip(worst.index, worst["regret"], worst["why"]):
    print(f"morning {morning}, {lost:.1f} minutes: {why}")

# %% [markdown]
# ## What was gained

# %%
mse, ours = (report.regret for report in reports.values())
gained = mse - ours
margin = 1.96 * gained.std() / np.sqrt(len(gained))
better, worse = np.mean(gained > 1e-6), np.mean(gained < -1e-6)
print(f"PEAR saves {gained.mean():.2f} ± {margin:.2f} minutes a morning (95 % interval),")
print(f"{gained.sum() / mse.sum():.0%} of what the squared error loses.")
print(f"It is faster on {better:.0%} of the mornings and slower on {worse:.0%}.")
