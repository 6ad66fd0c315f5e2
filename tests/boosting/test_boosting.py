"""Regret as an objective of LightGBM and XGBoost: its gradient, its scale, and the decisions of the trained trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError

lgb = pytest.importorskip("lightgbm", reason="LightGBM is not installed; pip install 'pear-dfl[lightgbm]'")

TASK = pear.tasks.shortest_path((3, 3))
K = TASK.problem.n
X, C = (np.asarray(part, dtype=float) for part in TASK.samples(260, degree=8, seed=2))
TRAIN, HELD_OUT, TEST = slice(0, 120), slice(120, 180), slice(180, 260)
SETTINGS: dict[str, Any] = {"num_leaves": 4, "min_child_samples": 10, "verbose": -1, "num_threads": 1}
rng = np.random.default_rng(0)
FORECAST = C[TRAIN] + 0.2 * rng.normal(size=C[TRAIN].shape)


def regret(forecast: Any, part: slice = TEST) -> float:
    return pear.normalized_regret(TASK.problem, forecast[part], C[part])


def test_the_gradient_is_that_of_the_loss() -> None:
    gradient, curvature = pear.boosting.objective(TASK.problem, guidance=2.0)(C[TRAIN], FORECAST)
    loss = pear.PEARLoss(TASK.problem, guidance=2.0, reduction="sum")
    loss.calibrate(C[TRAIN])
    values = torch.tensor(FORECAST, requires_grad=True)
    loss(values, torch.tensor(C[TRAIN])).backward()
    assert values.grad is not None
    g = values.grad.numpy()
    factor = ((FORECAST - C[TRAIN]) * g).sum() / (g * g).sum()
    assert factor > 0
    assert np.allclose(gradient, factor * g, rtol=1e-12)
    assert np.array_equal(curvature, np.ones_like(FORECAST))


def test_the_curvature_of_a_linear_program_is_one_over_the_smoothing() -> None:
    lam = 0.3
    gradient, _ = pear.boosting.objective(TASK.problem, smoothing=lam, injection=0.0, guidance=0.0)(C[TRAIN], FORECAST)
    exact = pear.regret_gradient(TASK.problem, FORECAST, C[TRAIN], smoothing=lam).numpy()
    assert np.allclose(gradient, lam * exact, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_steps_have_the_unit_of_the_costs(unit: float) -> None:
    plain, _ = pear.boosting.objective(TASK.problem)(C[TRAIN], FORECAST)
    scaled, curvature = pear.boosting.objective(TASK.problem)(unit * C[TRAIN], unit * FORECAST)
    assert np.allclose(scaled / unit, plain, rtol=1e-6, atol=1e-9)
    assert (curvature == 1).all()


def test_guidance_falls_round_by_round() -> None:
    fading = pear.boosting.objective(TASK.problem, guidance=3.0, decay=0.0)
    first, second = (fading(C[TRAIN], FORECAST)[0] for _ in range(2))
    assert np.allclose(first, pear.boosting.objective(TASK.problem, guidance=3.0)(C[TRAIN], FORECAST)[0])
    assert np.allclose(second, pear.boosting.objective(TASK.problem, guidance=0.0)(C[TRAIN], FORECAST)[0])
    assert fading.rounds == 2


def test_a_perfect_forecast_has_no_gradient() -> None:
    gradient, curvature = pear.boosting.objective(TASK.problem)(C[TRAIN], C[TRAIN])
    assert np.abs(gradient).max() < 1e-9
    assert (curvature == 1).all()


def test_flat_rows_are_read_sample_by_sample() -> None:
    wide, _ = pear.boosting.objective(TASK.problem)(C[TRAIN], FORECAST)
    flat, curvature = pear.boosting.objective(TASK.problem)(C[TRAIN].ravel(), FORECAST.ravel())
    assert np.array_equal(flat, wide.ravel())
    assert curvature.shape == flat.shape


def test_a_model_boosts_the_values_of_its_cost_map() -> None:
    cost_map = pear.CostMap(np.repeat(np.eye(3), 4, axis=0), known=np.linspace(0, 1, 12))
    model = pear.Model(TASK.problem, cost_map=cost_map)
    true, forecast = rng.uniform(1, 2, (20, 3)), rng.uniform(1, 2, (20, 3))
    gradient, _ = pear.boosting.objective(model, true, injection=0.0, guidance=0.0, smoothing=0.3)(true, forecast)
    exact = pear.regret_gradient(model, forecast, true, smoothing=0.3).numpy()
    factor = ((forecast - true) * exact).sum() / (exact * exact).sum()
    assert np.allclose(gradient, factor * exact, atol=1e-9)
    assert pear.boosting.metric(model)(true, forecast)[1] == pytest.approx(
        pear.normalized_regret(model, forecast, true)
    )


def test_a_step_goes_downhill_where_the_regret_rises_towards_the_truth() -> None:
    rows = pear.Problem(G=[[-1.0, -1.0, -1.0], [1.0, 2.0, 0.0]], h=[-2.0, 3.0], lb=0.0, ub=2.0)
    model = pear.Model.predicting(rows, h=True, recourse=pear.Penalty(h=[3.0, 2.0]))
    true, forecast = np.array([[1.1, 2.0, 1.3, -3.0, 3.1]]), np.array([[1.0, 1.9, 2.9, -4.1, 3.1]])
    objective = pear.boosting.objective(model, smoothing=0.1, injection=0.0, guidance=0.0)
    step, _ = objective(true, forecast)
    values = torch.tensor(forecast, requires_grad=True)
    objective.loss(values, torch.tensor(true)).sum().backward()
    assert values.grad is not None
    gradient = values.grad.numpy()
    assert ((forecast - true) * gradient).sum() < 0
    assert (step * gradient).sum() > 0


def test_problems_with_rows_of_their_own() -> None:
    own = pear.Problem(G=np.ones((1, 3)), h=rng.uniform(0.5, 2, (20, 1)), lb=0.0, ub=1.0, sense="max")
    true, forecast = rng.uniform(1, 2, (20, 3)), rng.uniform(1, 2, (20, 3))
    gradient, _ = pear.boosting.objective(own, injection=0.0, guidance=0.0, smoothing=0.3)(true, forecast)
    assert np.allclose(gradient, 0.3 * pear.regret_gradient(own, forecast, true, smoothing=0.3).numpy(), atol=1e-9)
    assert pear.boosting.metric(own)(true, forecast)[1] == pytest.approx(pear.normalized_regret(own, forecast, true))


def boosted(start: np.ndarray[Any, Any], rounds: int = 60) -> np.ndarray[Any, Any]:
    data = lgb.Dataset(X[TRAIN], np.zeros(120), init_score=start[TRAIN])
    held_out = lgb.Dataset(X[HELD_OUT], np.zeros(60), init_score=start[HELD_OUT], reference=data)
    settings = {"objective": pear.boosting.objective(TASK.problem, C[TRAIN]), "num_class": K, **SETTINGS}
    judge, stop = pear.boosting.metric(TASK.problem, C[HELD_OUT]), lgb.early_stopping(20, verbose=False)
    return start + lgb.train(settings, data, rounds, [held_out], feval=judge, callbacks=[stop]).predict(X)


def test_lightgbm_decides_better_than_on_the_squared_error() -> None:
    """The table has one row for each sample; ``num_class`` is the number of predicted values."""
    squared = np.column_stack(
        [lgb.train({"objective": "l2", **SETTINGS}, lgb.Dataset(X[TRAIN], c), 40).predict(X) for c in C[TRAIN].T]
    )
    mean = np.tile(C[TRAIN].mean(0), (len(X), 1))
    assert regret(boosted(mean)) < 0.9 * regret(squared)


def test_lightgbm_with_a_row_for_every_value() -> None:
    """LightGBM's scikit-learn interface is used, and the labels are the costs themselves."""
    arc = np.tile(np.arange(K), 120)
    long = np.column_stack([np.repeat(X[TRAIN], K, axis=0), arc])
    start = np.repeat(C[TRAIN].mean(), 120 * K)
    model = lgb.LGBMRegressor(objective=pear.boosting.objective(TASK.problem), n_estimators=30, **SETTINGS)
    model.fit(long, C[TRAIN].ravel(), init_score=start)
    forecast = (start + model.predict(long)).reshape(-1, K)
    assert pear.normalized_regret(TASK.problem, forecast, C[TRAIN]) < 0.8 * regret(
        np.tile(C[TRAIN].mean(0), (260, 1)), TRAIN
    )


def test_groups_may_come_interleaved() -> None:
    order = np.random.default_rng(5).permutation(120)  # samples in another order, value after value
    rows = np.concatenate([K * order + value for value in range(K)])
    days = np.repeat(np.arange(120), K)[rows]
    sorted_alike, _ = pear.boosting.objective(TASK.problem)(C[TRAIN][order].ravel(), FORECAST[order].ravel())
    gradient, curvature = pear.boosting.objective(TASK.problem, groups=days)(
        C[TRAIN].ravel()[rows], FORECAST.ravel()[rows]
    )
    wide = np.empty((120, K))
    wide[days, rows % K] = gradient
    np.testing.assert_array_equal(wide[order], sorted_alike.reshape(120, K))
    assert curvature.shape == gradient.shape == (120 * K,)
    value = pear.boosting.metric(TASK.problem, groups=days)(C[TRAIN].ravel()[rows], FORECAST.ravel()[rows])[1]
    assert value == pytest.approx(pear.normalized_regret(TASK.problem, FORECAST, C[TRAIN]), rel=1e-12)
    with pytest.raises(ProblemError, match=r"every group must have exactly 12 rows.*group 3 has 11"):
        pear.boosting.objective(TASK.problem, groups=np.delete(np.repeat(np.arange(120), K), 3 * K))
    with pytest.raises(ProblemError, match=r"a value for each of the 1440 rows that groups names; got \(24,\)"):
        pear.boosting.objective(TASK.problem, groups=days)(C[:2].ravel(), C[:2].ravel())


def test_trees_on_top_of_trees_on_a_long_table() -> None:
    """The forecasts that the objective receives include the base's forecasts, and the base forecasts new rows."""
    long = np.column_stack([np.repeat(X, K, axis=0), np.tile(np.arange(K), len(X))])
    days, flat = np.repeat(np.arange(len(X)), K), C.ravel()
    train, held_out, test = days < 120, (days >= 120) & (days < 180), days >= 180
    base = lgb.LGBMRegressor(n_estimators=60, **SETTINGS).fit(long[train], flat[train])
    start = pear.boosting.out_of_fold(base, long[train], flat[train], groups=days[train])
    regret_objective, seen = pear.boosting.objective(TASK.problem, flat[train], groups=days[train]), []

    def record(forecast: Any, data: Any) -> Any:
        seen.append(np.array(forecast))
        return regret_objective(forecast, data)

    data = lgb.Dataset(long[train], flat[train], init_score=start)
    later = lgb.Dataset(long[held_out], flat[held_out], init_score=base.predict(long[held_out]), reference=data)
    booster = lgb.train(
        {"objective": record, **SETTINGS},
        data,
        60,
        [later],
        feval=pear.boosting.metric(TASK.problem, groups=days[held_out]),
        callbacks=[lgb.early_stopping(20, verbose=False)],
    )
    np.testing.assert_allclose(seen[0], start, rtol=1e-12)
    np.testing.assert_allclose(seen[1], start + booster.predict(long[train], num_iteration=1), rtol=1e-6)
    forecast = base.predict(long[test]) + booster.predict(long[test])
    before = pear.normalized_regret(TASK.problem, base.predict(long[test]).reshape(-1, K), C[TEST])
    assert pear.normalized_regret(TASK.problem, forecast.reshape(-1, K), C[TEST]) < 0.95 * before


def test_forecasts_out_of_fold_are_those_of_copies_fitted_without_the_block() -> None:
    base = lgb.LGBMRegressor(n_estimators=5, **SETTINGS)
    made = pear.boosting.out_of_fold(base, X[TRAIN], C[TRAIN][:, 0], folds=4)
    by_hand = lgb.LGBMRegressor(n_estimators=5, **SETTINGS).fit(X[30:120], C[30:120, 0]).predict(X[:30])
    np.testing.assert_array_equal(made[:30], by_hand)
    booster = lgb.train({"objective": "l2", **SETTINGS}, lgb.Dataset(X[TRAIN], C[TRAIN][:, 0]), 2)
    with pytest.raises(ProblemError, match="a Booster cannot be fitted again"):
        pear.boosting.out_of_fold(booster, X[TRAIN], C[TRAIN][:, 0])


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_xgboost_takes_labels_of_many_columns(strategy: str) -> None:
    xgb = pytest.importorskip("xgboost", reason="XGBoost is not installed; pip install 'pear-dfl[xgboost]'")
    mean = np.tile(C[TRAIN].mean(0), (len(X), 1))
    parts = [xgb.DMatrix(X[part], label=C[part], base_margin=mean[part]) for part in (TRAIN, HELD_OUT, TEST)]
    record: dict[str, Any] = {}
    booster = xgb.train(
        {"multi_strategy": strategy, "max_depth": 2, "eta": 0.1, "nthread": 1, "disable_default_eval_metric": 1},
        parts[0],
        40,
        evals=[(parts[1], "held_out")],
        obj=pear.boosting.objective(TASK.problem),
        custom_metric=pear.boosting.metric(TASK.problem),
        evals_result=record,
        verbose_eval=False,
    )
    forecast = booster.predict(parts[2])
    assert pear.normalized_regret(TASK.problem, forecast, C[TEST]) < 0.8 * regret(mean)
    final = pear.normalized_regret(TASK.problem, booster.predict(parts[1]), C[HELD_OUT])
    assert record["held_out"]["regret"][-1] == pytest.approx(final, abs=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"LightGBM keeps one label a row: pass the true values"):
        lgb.train(
            {"objective": pear.boosting.objective(TASK.problem), "num_class": K, **SETTINGS},
            lgb.Dataset(X[TRAIN], np.zeros(120)),
            2,
        )
    with pytest.raises(ProblemError, match=r"true must have shape \(N, 12\).*got \(120, 5\)"):
        pear.boosting.objective(TASK.problem, X[TRAIN])
    with pytest.raises(ProblemError, match=r"120 forecasts .* values of 120 samples: set num_class=12 in the settings"):
        lgb.train(
            {"objective": pear.boosting.objective(TASK.problem, C[TRAIN]), **SETTINGS},
            lgb.Dataset(X[TRAIN], np.zeros(120)),
            2,
        )
    with pytest.raises(ProblemError, match="60 samples have true values, and forecasts came for 120"):
        pear.boosting.objective(TASK.problem, C[HELD_OUT])(C[TRAIN], FORECAST)
    with pytest.raises(ProblemError, match="decay must be a number from 0 to 1; got 2"):
        pear.boosting.objective(TASK.problem, decay=2)
    with pytest.raises(ProblemError, match="guidance must be a finite number"):
        pear.boosting.objective(TASK.problem, guidance=-1)
