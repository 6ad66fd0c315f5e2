# %% [markdown]
# # Unit commitment from an LP file, by commands alone
#
# A planner exports the day-ahead schedule of a few power plants as an LP file, and the history
# of demand, market prices and weather as a CSV file. No Python is needed from here on: `pear
# advise` looks at the model, `pear train` trains forecasters of demand and prices, `pear
# predict` forecasts tomorrow, and `pear decide` schedules it.

# %%
import os
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from typer.testing import CliRunner

from pear.cli.app import app

SMALL = bool(os.environ.get("PEAR_SMALL"))
BLOCKS, DAYS = (2, 40) if SMALL else (4, 150)


def run(command):
    """Run a command line as a terminal would, and show it with what it prints."""
    done = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "100"})
    print(f"$ {command}\n{done.output.strip()}")


# %% [markdown]
# ## What the planner exports
#
# Three plants are on or off. Each has a least and a greatest output, and a cost of starting.
# The demand that they do not cover is imported at the price of the market, `imp`. The rows
# `dem` are the balances. Their right-hand sides are the demand; the file has a placeholder.

# %%
plants = {"coal": (30, 60, 20, 1100), "gas": (15, 40, 35, 550), "oil": (5, 30, 60, 160)}
blocks = range(BLOCKS)
objective = [f"50 imp{t}" for t in blocks]
rows, whole = [], []
for name, (least, most, fuel, start) in plants.items():
    for t in blocks:
        before = f" + {name}_on{t - 1}" if t else ""
        objective += [f"{fuel} {name}{t}", f"{start} {name}_start{t}"]
        rows.append(f"{name}_most{t}: {name}{t} - {most} {name}_on{t} <= 0")
        rows.append(f"{name}_least{t}: {name}{t} - {least} {name}_on{t} >= 0")
        rows.append(f"{name}_starts{t}: {name}_start{t} - {name}_on{t}{before} >= 0")
        whole.append(f"{name}_on{t}")
for t in blocks:
    rows.append(f"dem{t}: imp{t} + " + " + ".join(f"{name}{t}" for name in plants) + " = 80")
bounds = [f"imp{t} <= 30" for t in blocks]
bounds += [f"{name}_start{t} <= 1" for name in plants for t in blocks]
sections = {
    "min": ["cost: " + " + ".join(objective)],
    "st": rows,
    "bounds": bounds,
    "binary": [" ".join(whole)],
    "end": [],
}
text = [f"{head}\n" + "".join(f" {line}\n" for line in body) for head, body in sections.items()]
Path("plants.lp").write_text("".join(text))

# %% [markdown]
# The history: four features that are known the day before, then what came true. Columns are
# named as in the model: `imp0`, … are costs, `dem0`, … are right-hand sides.

# %%
rng = np.random.default_rng(0)
X = rng.normal(size=(DAYS, 4))
shape = 60 / (1 + np.exp(X[:, :1])) + 10
profile = 70 + 25 * np.sin(np.linspace(0, np.pi, BLOCKS))
demand = profile * np.exp(X @ rng.normal(size=(4, BLOCKS)) / 10)
demand *= rng.gamma(shape, 1 / shape, (DAYS, BLOCKS))
price = 50 * np.exp(X @ rng.normal(size=(4, BLOCKS)) / 5 + rng.normal(0, 0.1, (DAYS, BLOCKS)))
columns = ["cold", "wind", "sun", "weekday"]
columns += [f"{name}{t}" for name in ("imp", "dem") for t in blocks]
history = pd.DataFrame(np.hstack([X, price, np.minimum(demand, 150)]), columns=columns)
history.round(4).to_csv("days.csv", index=False)
lines = Path("plants.lp").read_text().splitlines()
print("\n".join([*lines[:1], lines[1][:90] + " …", *lines[2:5]]))

# %% [markdown]
# ## Advice
#
# `dem0=150:5` says that the right-hand side of the row `dem0` is predicted, and that a megawatt
# too little costs 150 on the balancing market, and one too much costs 5. Without it the command
# stops: true demand must not become a feature by accident.

# %%
costs = ",".join(f"imp{t}" for t in blocks)
run(f"pear train plants.lp days.csv --costs {costs}")

# %%
sides = ",".join(f"dem{t}=150:5" for t in blocks)
run(f"pear advise plants.lp days.csv --costs {costs},{sides}")

# %% [markdown]
# ## Train
#
# The command trains two forecasters, one on its squared error and one on what its schedules
# lose. The last fifth of the days judges both.

# %%
size = "--max-epochs 2" if SMALL else "--max-epochs 64"
run(f"pear train plants.lp days.csv --costs {costs},{sides} {size} --out plants.pear")

# %% [markdown]
# ## Decide
#
# Tomorrow is a row of features. `pear predict` writes the forecasts, `pear decide` the
# schedule, with a column for every variable of the LP file.

# %%
history[["cold", "wind", "sun", "weekday"]].tail(3).to_csv("tomorrow.csv", index=False)
run("pear predict plants.pear tomorrow.csv --out forecasts.csv")
run("pear decide plants.pear tomorrow.csv --out schedule.csv")

# %%
forecast, schedule = pd.read_csv("forecasts.csv"), pd.read_csv("schedule.csv")
figure, axes = plt.subplots(figsize=(7, 3))
at = np.arange(BLOCKS)
bottom = np.zeros(BLOCKS)
for name in (*plants, "imp"):
    output = schedule.loc[0, [f"{name}{t}" for t in blocks]].to_numpy(float)
    axes.bar(at, output, bottom=bottom, label="import" if name == "imp" else name)
    bottom += output
expected = forecast.loc[0, [f"dem{t}" for t in blocks]]
axes.step(at, expected, where="mid", color="k", label="forecast of demand")
axes.set(xlabel="block of six hours", ylabel="MW", title="The first schedule")
axes.legend(ncols=2)

# %% [markdown]
# Four commands, and no Python but for the export. A PyEPO user writes a class around a
# solver, a data set, a loss and a loop, and PyEPO predicts costs alone: demand in a right-hand
# side is beyond it. With cvxpylayers the plants cannot be on or off.
