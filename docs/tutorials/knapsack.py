# %% [markdown]
# # What to load, from an MPS file
#
# A freight plane leaves every night. Twenty-four customers offer a load each; weights and
# volumes are fixed by contract, and what each of them pays depends on the day and is known only
# after the plane has been loaded. If need be a trailer can be hitched to a truck that follows,
# for a fee that is known. The planning department has an integer program for this, and gives
# you the file that its software writes. You have the features of 400 days and the payments that
# came true.
#
# The question is which forecaster of the 24 payments loads the plane best.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_score

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

# %% [markdown]
# ## The file
#
# Yours is there already; this one is written here, in the same format.

# %%
rng = np.random.default_rng(0)
loads = [f"load{i:02}" for i in range(24)]
weight, volume = rng.integers(5, 30, 24), rng.integers(5, 30, 24)
fee = 12.0

columns = [f" {name} pay 1 weight {w} volume {v}" for name, w, v in zip(loads, weight, volume)]
columns += [f" trailer pay {-fee} weight -60 volume -60"]
lines = ["NAME PLANE", "OBJSENSE", " MAX", "ROWS", " N pay", " L weight", " L volume"]
lines += ["COLUMNS", *columns]
lines += ["RHS", f" RHS weight {weight.sum() // 3}", f" RHS volume {volume.sum() // 3}"]
lines += ["BOUNDS", *(f" BV BND {name}" for name in [*loads, "trailer"]), "ENDATA"]
Path("plane.mps").write_text("\n".join(lines) + "\n")

m = pear.from_mps("plane.mps", predicted=loads)
print(m)

# %% [markdown]
# The payments of the loads are predicted; the trailer's fee stays as the file has it. Decisions
# come back by the names of the file, and in whole numbers:

# %%
tonight = m.decision(pear.solve(m, rng.uniform(2, 12, 24)[None]).x)
print("on board:", ", ".join(name for name, taken in tonight.items() if taken.item() == 1))

# %% [markdown]
# ## The history
#
# Five features a day. Payments grow faster than linearly with what drives them, and each has
# noise of 20 % up or down, which no forecaster can know.

# %%
days = 60 if SMALL else 400
X = rng.normal(size=(days, 5))
drive = (X @ rng.binomial(1, 0.5, (5, 24)) / np.sqrt(5) + 3) / 3.5
expected = 5 * drive**5
payments = expected * rng.uniform(0.8, 1.2, (days, 24))

# %% [markdown]
# ## Two losses, five folds
#
# `DecisionRegressor` is a regressor of scikit-learn, and its score is minus the share of the
# best possible income that its decisions lose. It trains on the continuous relaxation and is
# scored on whole loads. Five folds give five numbers for each loss, on days that the forecaster
# has not seen.
#
# Nobody reaches zero: a forecaster that knew everything but the noise would lose something,
# too. Here it can be computed.

# %%
folds, epochs = (2, 5) if SMALL else (5, 100)
lost = {}
for name, loss in (("squared error", "mse"), ("PEAR", "pear")):
    forecaster = pear.DecisionRegressor(m, loss=loss, max_epochs=epochs)
    lost[name] = -100 * cross_val_score(forecaster, X, payments, cv=folds)
    print(f"{name:14} loses {lost[name].mean():.2f} %; by fold", lost[name].round(2))
floor = 100 * pear.normalized_regret(m, expected, payments)
print(f"{'all but noise':14} loses {floor:.2f} %")

# %%
figure, axes = plt.subplots()
for fold in range(folds):
    axes.plot([values[fold] for values in lost.values()], color="C1", marker="o", alpha=0.6)
axes.axhline(floor, color="grey", linestyle="--")
axes.text(0.5, floor + 0.05, "everything known but the noise", ha="center", color="grey")
axes.set_xticks(range(2), lost)
axes.set(ylim=(0, None), xlim=(-0.3, 1.3))
axes.set(title="Share of the best income lost on unseen days, %; a line is a fold")

# %% [markdown]
# ## What was gained

# %%
gained = lost["squared error"] - lost["PEAR"]
avoidable = lost["squared error"].mean() - floor
print(
    f"PEAR loses less in {np.sum(gained > 0)} of {folds} folds, by {gained.mean():.2f} points:"
)
print(f"{gained.mean() / avoidable:.0%} of what a better forecaster could have saved at all.")

# %% [markdown]
# The forecaster is a linear model in both cases, and follows the payments of degree 5 in
# neither. Trained on decisions it spends its few weights where they change what is loaded.
