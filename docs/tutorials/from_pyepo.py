# %% [markdown]
# # Moving a PyEPO project over
#
# You have a project that uses [PyEPO](https://github.com/khalil-research/PyEPO): a class
# derived from `optModel`, a data set, a loss, a training loop. This page keeps the class, moves
# the loop over line by line, checks that both libraries mean the same by regret, and compares
# what comes out on four data sets.

# %%
import os
import time

import highspy
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyepo
import torch
from pyepo.data.dataset import optDataset
from pyepo.model.opt import optModel
from torch.utils.data import DataLoader, TensorDataset

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

# %% [markdown]
# ## What you have
#
# The cheapest way through a grid of streets, with HiGHS as the solver; and five features that
# the costs of the streets depend on.


# %%
class Streets(optModel):
    """From the north-west corner to the south-east one; arcs go east and south."""

    def __init__(self, size):
        self.size = size
        super().__init__()

    def _getModel(self):
        node = np.arange(self.size**2).reshape(self.size, self.size)
        arcs = [*zip(node[:, :-1].flat, node[:, 1:].flat), *zip(node[:-1].flat, node[1:].flat)]
        highs = highspy.Highs()
        highs.silent()
        take = [highs.addBinary(name=f"{tail}-{head}") for tail, head in arcs]
        for here in node.flat:
            out = sum(x for x, (tail, _) in zip(take, arcs) if tail == here)
            into = sum(x for x, (_, head) in zip(take, arcs) if head == here)
            highs.addConstr(out - into == int(here == 0) - int(here == node[-1, -1]))
        return highs, take

    def setObj(self, c):
        for x, cost in zip(self.x, c):
            self._model.changeColCost(x.index, float(cost))

    def solve(self):
        self._model.run()
        solution, info = self._model.getSolution(), self._model.getInfo()
        return solution.col_value, info.objective_function_value


streets = Streets(5)
samples, epochs, seeds = (40, 2, 2) if SMALL else (200, 20, 4)


def history(seed):
    """Features and costs to train on, features and costs to test on."""
    settings = {"deg": 6, "noise_width": 0.5, "seed": seed}
    X, C = pyepo.data.shortestpath.genData(2 * samples, 5, (5, 5), **settings)
    X, C = torch.tensor(X).float(), torch.tensor(C).float()
    return X[:samples], C[:samples], X[samples:], C[samples:]


# %% [markdown]
# ## The loop in PyEPO
#
# `optDataset` takes the model first, and solves every sample when it is made. It hands out
# features, costs, best decisions and their values, in this order; the loss takes predicted
# costs in the place of the features.


# %%
def train_with_pyepo(X, C):
    net = torch.nn.Linear(5, streets.num_cost)
    loader = DataLoader(optDataset(streets, X, C), batch_size=32, shuffle=True)
    loss = pyepo.func.SPOPlus(streets, processes=1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(epochs):
        for x, c, z, value in loader:
            optimizer.zero_grad()
            loss(net(x), c, z, value).backward()
            optimizer.step()
    return net


# %% [markdown]
# ## The same loop with PEAR
#
# `pear.from_pyepo` reads the matrices out of the model, and finds by calling `setObj` which
# cost goes where. A data set of features and costs is enough. The best decision of a sample is
# solved once, when the loss first sees it, and kept under the sample's number. Pass that number
# as `keys`; where it is left out, only time is lost.

# %%
m = pear.from_pyepo(streets)
print(m)


def train_with_pear(X, C):
    net = torch.nn.Linear(5, m.inputs)
    loader = DataLoader(TensorDataset(X, C, torch.arange(samples)), batch_size=32, shuffle=True)
    loss = pear.PEARLoss(m)
    loss.calibrate(
        C
    )  # settles the smoothing on all training costs; without it on the first batch
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(epochs):
        for x, c, keys in loader:
            optimizer.zero_grad()
            loss(net(x), c, keys=keys).backward()
            optimizer.step()
            loss.step()  # guidance fades
    return net


# %% [markdown]
# | PyEPO | PEAR |
# |---|---|
# | `optModel` | `m = pear.from_pyepo(optmodel)`, solved in batches |
# | `optDataset(optmodel, X, C)`: `x, c, z, value` | any data set of `x, c, keys` |
# | `SPOPlus(optmodel)(predicted, c, z, value)` | `PEARLoss(m)(predicted, c, keys=…)` |
# | `modelSense = EPO.MAXIMIZE` | read from the model |
# | `processes=4` | `torch.set_num_threads(4)` |
# | `pyepo.metric.regret(net, optmodel, loader)` | `pear.normalized_regret(m, net(X), C)` |
#
# ## Do both mean the same by regret?
#
# They do: each library judges both forecasters, on test samples that neither was trained on.

# %%
rows = []
for seed in range(seeds):
    X, C, test_X, test_C = history(seed)
    tested = DataLoader(optDataset(streets, test_X, test_C), batch_size=32)
    for name, train in (("SPO+ in PyEPO", train_with_pyepo), ("PEAR", train_with_pear)):
        torch.manual_seed(seed)
        start = time.process_time()
        net = train(X, C)
        seconds = time.process_time() - start
        by_pear = 100 * pear.normalized_regret(m, net(test_X), test_C)
        by_pyepo = 100 * pyepo.metric.regret(net, streets, tested)
        rows.append((seed, name, by_pear, by_pyepo, seconds))
columns = ["data set", "trained with", "regret %", "regret % by PyEPO", "CPU seconds"]
table = pd.DataFrame(rows, columns=columns)
table.round(3)

# %%
figure, (left, right) = plt.subplots(1, 2)
for axes, column in ((left, "regret %"), (right, "CPU seconds")):
    numbers = table.pivot(index="data set", columns="trained with", values=column)
    numbers.plot.bar(ax=axes, color=["C1", "C2"], rot=0, legend=axes is left)
    means = " and ".join(f"{mean:.1f}" for mean in numbers.mean())
    axes.margins(y=0.35)
    axes.set(title=f"{column[0].upper() + column[1:]}: {means} on average")

# %% [markdown]
# ## What was gained
#
# Time, first of all: PyEPO has HiGHS solve the integer program of one sample after the other,
# and PEAR trains on the relaxation, a batch at once. Whether the decisions are better is
# another matter: with so few samples and so much noise the two losses lie close together, and
# either may be ahead. [Results over many seeds](../results.md) says which is, and where.
#
# SPO+ is here as well: `pear.losses.SPOPlusLoss(m)` goes into the second loop in the place of
# `PEARLoss(m)`, and so does any other loss of PyEPO, which then runs on our solvers:
# `pear.losses.pyepo.PyEPOLoss(m.problem, pyepo.func.PFY)`. A loop of your own can become
# `pear.fit(net, loss, (X, C))`, with early stopping on held-out samples, or
# `pear.DecisionRegressor(m)`.
