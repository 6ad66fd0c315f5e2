# %% [markdown]
# # A round trip, decided by a function of your own
#
# A van visits nine places every morning, in the order that takes the least time. The travel
# times of the day are forecast, and the order is found by code that you have had for years: no
# matrices, no modelling language, just a function from travel times to a trip. This page trains
# the forecaster on what that function makes of its forecasts.

# %%
import inspect
import os
import time
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pyepo
import torch
from pyepo.data.dataset import optDataset
from pyepo.model.opt import optModel
from sklearn.linear_model import RidgeCV
from torch.utils.data import DataLoader

import pear

SMALL = bool(os.environ.get("PEAR_SMALL"))  # set by the tests, which have seconds

# %% [markdown]
# ## The function that decides
#
# Nine places have 36 connections and 20,160 round trips. All round trips fit into one matrix,
# and the function compares them all. Yours may be a heuristic, a constraint solver or a call of
# a service: all that counts is that costs go in and a decision comes out.

# %%
places = 5 if SMALL else 9
legs = list(combinations(range(places), 2))
number = np.zeros((places, places), dtype=int)
for i, (here, there) in enumerate(legs):
    number[here, there] = number[there, here] = i
orders = [(0, *rest) for rest in permutations(range(1, places)) if rest[0] < rest[-1]]
trips = np.zeros((len(orders), len(legs)))  # 1 where a round trip uses a leg
np.put_along_axis(trips, number[orders, np.roll(orders, -1, axis=1)], 1.0, axis=1)


def best_trips(minutes):
    """The best round trips (B, n) for travel times (B, n)."""
    return trips[(minutes @ trips.T).argmin(1)]


# %% [markdown]
# ## The mornings
#
# Five things are known the evening before. Where several come together, traffic does not grow
# by a little: it grows with a power, which a linear forecaster cannot follow everywhere. The
# question is where it should be right.

# %%
days, seeds, epochs = (32, 1, 4) if SMALL else (400, 3, 64)


def history(seed):
    """Features and travel times of 2 · days mornings."""
    draw = np.random.default_rng(seed)
    where = draw.uniform(0, 60, (places, 2))
    distance = np.array([np.hypot(*(where[here] - where[there])) for here, there in legs])
    X = draw.normal(size=(2 * days, 5))
    jam = ((X @ draw.binomial(1, 0.5, (5, len(legs))) / np.sqrt(5) + 3) / 3.5) ** 6
    return X, distance * (0.5 + jam) * draw.uniform(0.8, 1.2, (2 * days, len(legs)))


# %% [markdown]
# ## The function in the place of a problem
#
# `pear.Oracle` wraps the function, and stands wherever a `pear.Problem` stands. A check of your
# own says in words what is wrong with a decision; shape and finite numbers are always checked.
# That the trip is the best one is the function's claim, and the status says so.


# %%
def is_round_trip(trip):
    visits = [
        sum(used for leg, used in zip(legs, trip) if place in leg) for place in range(places)
    ]
    return (
        visits == [2] * places
        or f"place {np.argmax(np.array(visits) != 2)} is not visited once"
    )


oracle = pear.Oracle(best_trips, n=len(legs), batched=True, check=is_round_trip)
X, C = history(0)
found = pear.solve(oracle, C)
print(found)
print(pear.Status(int(found.status[0])).sentence)

# %% [markdown]
# Methods that need nothing but decisions train with it: SPO+, PFYL, DBB. PEAR needs a program
# that contains the decisions, because it differentiates the program. A round trip enters and
# leaves every place: nine equations. They do not describe round trips completely (three trips
# through three places each satisfy them as well), but they are enough to train on. The function
# still decides whenever a forecast is judged.

# %%
degrees = pear.Problem(
    A=[[float(place in leg) for leg in legs] for place in range(places)],
    b=[2.0] * places,
    lb=0.0,
    ub=1.0,
)
relaxed = pear.Oracle(best_trips, batched=True, relaxation=degrees)


# %%
def with_ridge(X, C):
    return RidgeCV(np.logspace(-3, 3, 13)).fit(X, C)


def with_spo(X, C):
    settings = {"max_epochs": epochs, "validation_fraction": 0.25}
    return pear.DecisionRegressor(oracle, loss="spo+", **settings).fit(X, C)


def with_pear(X, C):
    settings = {"max_epochs": epochs, "validation_fraction": 0.25}
    return pear.DecisionRegressor(relaxed, **settings).fit(X, C)


# %% [markdown]
# ## The same with PyEPO
#
# [PyEPO](https://github.com/khalil-research/PyEPO) asks for a class with a model of one sample,
# whose costs are set before it is solved, and for a loop.


# %%
def with_pyepo(X, C):
    class Trip(optModel):
        def _getModel(self):
            return trips, range(len(legs))

        @property
        def num_cost(self):
            return len(legs)

        def setObj(self, c):
            self.minutes = np.asarray(c)

        def solve(self):
            trip = best_trips(self.minutes[None])[0]
            return trip, float(self.minutes @ trip)

    model, net = Trip(), torch.nn.Linear(X.shape[1], len(legs))
    loader = DataLoader(optDataset(model, X, C), batch_size=32, shuffle=True)
    loss = pyepo.func.SPOPlus(model, processes=1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1.0)
    for _ in range(epochs // 4):
        for x, c, z, value in loader:
            optimizer.zero_grad()
            loss(net(x), c, z, value).backward()
            optimizer.step()
    return net


def lines(function):
    return len([line for line in inspect.getsource(function).splitlines() if line.strip()])


print(f"SPO+ with PyEPO: {lines(with_pyepo)} lines of code")
print(f"SPO+ with pear:  {lines(with_spo)} lines, and one for the oracle")
print(
    f"PEAR:            {lines(with_pear)} lines, one for the oracle, and six for the relaxation"
)

# %% [markdown]
# ## Minutes lost
#
# Every forecaster is trained on the first half of the mornings. What its trips lose in the
# second half is measured by the function: the travel time of the trip that it takes under the
# forecast, less that of the best trip, as a share of the latter.

# %%
forecasters = {
    "ridge regression": with_ridge,
    "SPO+ in PyEPO": with_pyepo,
    "SPO+": with_spo,
    "PEAR": with_pear,
}
rows = []
for seed in range(seeds):
    X, C = history(seed)
    for name, train in forecasters.items():
        torch.manual_seed(seed)
        start = time.perf_counter()
        model = train(X[:days].astype(np.float32), C[:days].astype(np.float32))
        seconds = time.perf_counter() - start
        unseen = torch.tensor(X[days:], dtype=torch.float32)
        predicted = (
            model(unseen).detach() if name == "SPO+ in PyEPO" else model.predict(unseen.numpy())
        )
        lost = 100 * pear.normalized_regret(oracle, predicted, C[days:])
        rows.append((seed, name, lost, seconds))
table = pd.DataFrame(rows, columns=["data set", "forecaster", "minutes lost, %", "seconds"])
table.groupby("forecaster", sort=False)[["minutes lost, %", "seconds"]].mean().round(2)

# %%
shown = table.pivot(index="data set", columns="forecaster", values="minutes lost, %")[
    [*forecasters]
]
axes = shown.plot.bar(color=["C0", "C3", "C2", "C1"], rot=0)
axes.margins(y=0.3)
axes.legend(ncols=4, loc="upper center")
axes.set(
    title="Minutes lost by trips that were planned on forecasts, in % of the best trips",
    ylabel="%",
)

# %% [markdown]
# ## What was gained
#
# Ridge regression knows nothing of trips, and loses four times as much: it is right on average,
# and wrong on the mornings that matter. The decision-focused losses see which legs compete for
# a place in the trip, and are about equally good here. They differ in what they need:
#
# - PyEPO's loop is one training, at a rate that suits costs of some thirty minutes. Both
#   regressors choose for themselves, in a race of about ten trainings, and may keep the squared
#   error where nothing is clearly better.
# - SPO+ asks the function about every sample of every epoch. PEAR trains on nine equations
#   instead of 20,160 trips, and needs the function only where forecasts are judged. With a
#   function that takes seconds, that difference matters. `processes=8` shares the samples among
#   processes, and equal costs are decided once.
#
# [Any solver as a problem](../any-solver.md) has the rest: ids of samples, rows that are added
# when they are needed, diagnoses, model files.
