# %% [markdown]
# # A portfolio that trades from yesterday's holdings, with a Σ of its own every month
#
# You manage a fund of ten assets. Every day you forecast returns and solve a small CVXPY model:
# expected return, minus risk, minus what trading costs. Two of its numbers are no forecasts.
# The holdings of yesterday, from which you trade, are known, and so is this month's covariance
# Σ, which your risk department publishes. Both differ from row to row.
#
# This tutorial names them in `known=`, and trains a linear forecaster on what its trades lose.

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
# Made up, so that the page runs anywhere: three factors drive ten assets, their volatility
# changes from month to month, and three features say a little about tomorrow. `sigma` has a
# matrix for every day, that of its month. `held` are the holdings of the mornings in the books.

# %%
rng = np.random.default_rng(0)
days, n, month = (60 if SMALL else 600), 10, 20
loadings = rng.normal(size=(n, 3))
months = -(-days // month)
volatility = rng.lognormal(0, 0.4, (months, 3)) / 10
own = rng.uniform(0.02, 0.06, n)
sigma_of_month = np.stack(
    [(loadings * v**2) @ loadings.T + np.diag(own**2) for v in volatility]
)
sigma = np.repeat(sigma_of_month, month, axis=0)[:days]

X = rng.normal(size=(days, 3))
signal = 0.004 * np.tanh(2 * X @ rng.normal(size=(3, n))) * np.abs(X[:, :1])
shock = np.einsum("dij,dj->di", np.linalg.cholesky(sigma), rng.normal(size=(days, n)))
returns = signal + 0.05 * shock
held = rng.dirichlet(np.ones(n), days)
train, test = slice(0, days * 2 // 3), slice(days * 2 // 3, days)

# %% [markdown]
# ## The model you already have
#
# `mu` has to be forecast. `w0` and `Sigma` are known. The absolute values of the trades and
# the quadratic form hold parameters, which is fine for known ones.

# %%
mu, w0 = cp.Parameter(n, name="mu"), cp.Parameter(n, name="w0")
Sigma = cp.Parameter((n, n), name="Sigma", PSD=True)
w = cp.Variable(n, name="w", nonneg=True)
utility = mu @ w - 0.5 * cp.quad_form(w, Sigma) - 0.001 * cp.norm1(w - w0)
fund = cp.Problem(cp.Maximize(utility), [cp.sum(w) == 1, w <= 0.4, cp.norm1(w - w0) <= 0.6])

# %% [markdown]
# ## Train and judge

# %%
m = pear.from_cvxpy(fund, predicted=[mu], known=[w0, Sigma])
known = {"w0": held, "Sigma": sigma}
past, new = ({name: values[rows] for name, values in known.items()} for rows in (train, test))
options = {"max_epochs": 4 if SMALL else 100, "validation_fraction": 0.25}
squared = pear.DecisionRegressor(m, loss="mse", **options).fit(
    X[train], returns[train], known=past
)
trained = pear.DecisionRegressor(m, **options).fit(X[train], returns[train], known=past)
for name, model in (("squared error", squared), ("decisions", trained)):
    lost = pear.regret(m, model.predict(X[test]), returns[test], known=new)
    print(f"trained on the {name}: {1e4 * lost.mean():.2f} basis points lost a day")

# %% [markdown]
# ## Day after day
#
# In operation `w0` is what the fund holds after the last trades. Here the test days are traded
# one after the other, each from the holdings that the day before has left:


# %%
def trade(model):
    """Sum up what every test day was worth, which begins with the holdings of the last one."""
    earned, now = [], np.full(n, 1 / n)
    for day in range(test.start, test.stop):
        today = {"w0": now, "Sigma": sigma[day]}
        z = m.decision(pear.solve(m, model.predict(X[[day]]), known=today).x)["w"][0].numpy()
        risk = 0.5 * z @ sigma[day] @ z
        earned.append(returns[day] @ z - risk - 0.001 * np.abs(z - now).sum())
        now = z
    return np.cumsum(earned)


for name, model in (("squared error", squared), ("decisions", trained)):
    total = trade(model)
    plt.plot(100 * total, label=f"trained on the {name}")
    print(f"{name}: {100 * total[-1]:.2f} % in {len(total)} days, after risk and trading costs")
plt.xlabel("test day")
plt.ylabel("% after risk and trading costs")
plt.legend()
plt.show()

# %% [markdown]
# ## What it took, and what others write
#
# Beside the CVXPY model PEAR takes five lines: `import pear`, `from_cvxpy`, `fit`, `regret` and
# `decide`, with `known=` in the last three. With
# [cvxpylayers](https://github.com/cvxgrp/cvxpylayers) Σ enters by a factor
# (`sum_squares(L.T @ w)`), and holdings and factor are parameters of the layer:
#
# ```python no-run
# layer = CvxpyLayer(fund, parameters=[mu, w0, L], variables=[w])
# net = torch.nn.Linear(3, n)
# optimizer = torch.optim.Adam(net.parameters())
# for epoch in range(100):
#     for some in torch.randperm(400).split(32):
#         (z,) = layer(net(X[some]), held[some], factor[some])
#         risk = 0.5 * (z[:, None] @ factor[some]).square().sum((1, 2))
#         value = (returns[some] * z).sum(1) - risk - 0.001 * (z - held[some]).abs().sum(1)
#         optimizer.zero_grad()
#         (-value.mean()).backward()
#         optimizer.step()
# ```
#
# These are 11 lines, in which the objective is written a second time, without the scaling of
# features, validation, early stopping, and the best trades to compare with. In PyEPO a data set
# and its losses solve one `optModel` for all rows, and a row changes its costs alone: holdings
# and a Σ that differ by row have no place there.
