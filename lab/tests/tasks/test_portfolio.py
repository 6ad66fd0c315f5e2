"""Portfolios on prices: data, windows, forecaster, gradients, backtest, experiments and report."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run
from lab_files import working_days, write_prices
from portfolio_runs import AHEAD, ASSETS, WINDOW, batch, history, prices, reproduce, small, tiny
from torch import Tensor

import pear
from pear.errors import ProblemError
from pear.train import FitConfig, fit
from pear_lab.experiments import FILE_NAME, Database, ExperimentError, RunError, Selection, expand
from pear_lab.experiments.catalogue import LOWER_BOUNDS, PAPER_PORTFOLIO_METHODS
from pear_lab.experiments.protocols.portfolio_protocol import make_market
from pear_lab.report import read
from pear_lab.report.bootstrap import normalized_difference, paired_interval
from pear_lab.report.portfolio_section import portfolio_sections
from pear_lab.report.published_numbers import published
from pear_lab.tasks import market
from pear_lab.tasks.market import (
    METHODS,
    Evaluation,
    Forecaster,
    PortfolioPEARLoss,
    backtest,
    deepest_drawdowns,
    market_loss,
    moments,
    split_windows,
)

__all__ = ["prices", "tiny"]  # fixtures

needs_skfolio = pytest.mark.skipif(
    importlib.util.find_spec("skfolio") is None, reason="skfolio is not installed (pip install 'pear-lab[portfolio]')"
)


def gradients(model: Forecaster, loss: torch.nn.Module, known: Tensor, days: Tensor) -> list[Tensor]:
    value = loss(model(known), days)
    return list(torch.autograd.grad(value, list(model.parameters())))


# --- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assets", [ASSETS, WINDOW + AHEAD + 2], ids=["few names", "more names than days"])
@pytest.mark.parametrize("lower", [0.0, -0.2])
def test_the_exact_gradient_is_that_of_the_regret_through_the_whole_pipeline(assets: int, lower: float) -> None:
    # Much risk aversion: portfolios of several names, whose regret has a gradient.
    task = pear.tasks.portfolio(assets, risk_aversion=30.0, lower=lower)
    known, days = batch(assets=assets)
    model = small(assets)
    exact = gradients(model, market_loss("pear-exact", task, AHEAD), known, days)
    evaluation = Evaluation(task, days, AHEAD)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(8):
        direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        step = 1e-6
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                for p, d in zip(parameters, direction, strict=True):
                    p += sign * step * d
                ends.append(float(evaluation.outcome(model(known)).regret.mean()))
                for p, d in zip(parameters, direction, strict=True):
                    p -= sign * step * d
        slope = (ends[0] - ends[1]) / (2 * step)
        claimed = float(sum((g * d).sum() for g, d in zip(exact, direction, strict=True)))
        assert abs(slope) > 1e-6
        assert claimed == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("method", ["layer", "pear-exact"])
def test_a_key_whose_days_change_is_not_answered_from_the_old_ones(method: str) -> None:
    task = pear.tasks.portfolio(ASSETS, risk_aversion=30.0)
    known, days = batch()
    predicted, keys = small()(known).detach().requires_grad_(), torch.arange(len(days))
    loss = market_loss(method, task, AHEAD)
    values = [float(loss(predicted, days, keys=keys).detach()) for _ in range(2)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    other = torch.cat([days[:, :, :WINDOW], -days[:, :, WINDOW:]], 2)
    other[0] = days[0]  # one of them stays
    fresh = float(market_loss(method, task, AHEAD)(predicted, other).detach())
    assert abs(fresh - values[0]) > 1e-4 * abs(fresh)
    assert float(loss(predicted, other, keys=keys).detach()) == pytest.approx(fresh, rel=1e-9)


def test_the_layer_and_exact_pear_have_the_same_gradient_and_value() -> None:
    task = pear.tasks.portfolio(ASSETS, risk_aversion=30.0)
    known, days = batch()
    model = small()
    pair = [market_loss(name, task, AHEAD) for name in ("layer", "pear-exact")]
    values = [float(loss(model(known), days).detach()) for loss in pair]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    for a, b in zip(*(gradients(model, loss, known, days) for loss in pair), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-15)


def test_the_mode_mean_takes_the_predicted_covariance_for_the_true_one() -> None:
    task = pear.tasks.portfolio(ASSETS, risk_aversion=30.0)
    known, days = batch()
    model = small()
    found = gradients(model, market_loss("pear-mean", task, AHEAD), known, days)
    mu, sigma = moments(model(known), AHEAD)
    Q = task.curvature(sigma.detach())
    true = task.cost(days[:, :, -AHEAD:].mean(2))
    g = pear.regret_gradient(task.problem, task.cost(mu), true, smoothing=0.0, Q=Q, true_Q=Q)
    expected = torch.autograd.grad(mu, list(model.parameters()), grad_outputs=-g / len(mu))
    exact = gradients(model, market_loss("pear-exact", task, AHEAD), known, days)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-15) for a, b in zip(found, expected, strict=True))
    assert not all(torch.allclose(a, b, rtol=1e-3) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize("mode", ["mean", "exact"])
def test_injection_changes_the_gradient_and_not_the_value(mode: str) -> None:
    task = pear.tasks.portfolio(ASSETS, risk_aversion=30.0)
    known, days = batch()
    model = small()
    plain, injected = (market_loss(f"pear-{mode}{tail}", task, AHEAD) for tail in ("", "-injected"))
    assert float(plain(model(known), days).detach()) == float(injected(model(known), days).detach())
    pairs = zip(*(gradients(model, loss, known, days) for loss in (plain, injected)), strict=True)
    assert not all(torch.allclose(a, b) for a, b in pairs)


def test_unknown_methods_and_modes_are_refused() -> None:
    task = pear.tasks.portfolio(3)
    with pytest.raises(ProblemError, match="no method 'spo' for portfolios; there is mse, layer, pear-mean"):
        market_loss("spo", task)
    with pytest.raises(ProblemError, match="mode must be 'exact' or 'mean'; got 'both'"):
        market.PortfolioPEARLoss(task, mode="both")  # type: ignore[arg-type]


# --- windows, moments, forecaster ------------------------------------------------------------------------------------


def test_targets_of_the_splits_do_not_overlap_and_every_window_that_fits_is_there() -> None:
    total = 300
    numbered = torch.arange(total, dtype=torch.float64)[:, None]
    split = split_windows(numbered, WINDOW, AHEAD)
    first, second = split.borders
    assert (first, second) == (210, 240)
    bounds = {"train": (0, first), "validation": (first, second), "test": (second, total)}
    for name, (low, high) in bounds.items():
        windows = getattr(split, name)
        expected = [
            start
            for start in range(total - WINDOW - AHEAD + 1)
            if start + WINDOW >= low and start + WINDOW + AHEAD <= high
        ]
        assert windows.starts.tolist() == expected
        assert windows.days[:, 0].long().tolist() == [list(range(s, s + WINDOW + AHEAD)) for s in expected]
        assert torch.equal(windows.known, windows.days[:, :, :WINDOW])
    targets = split.rebalancing.days[:, 0, -AHEAD:].flatten().tolist()
    assert targets == list(range(second, second + len(targets)))
    assert len(targets) > total - second - AHEAD


def test_the_future_changes_nothing_before_it() -> None:
    returns = history(400)
    changed = returns.clone()
    border = split_windows(returns, WINDOW, AHEAD).borders[1]
    changed[border:] += 0.05
    models = [train_small(part) for part in (returns, changed)]
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(a, b)
    # Nor does a decision know the days it is judged by.
    task = pear.tasks.portfolio(ASSETS, 2.0)
    windows = split_windows(returns, WINDOW, AHEAD).rebalancing
    other = windows.days.clone()
    other[:, :, -AHEAD:] += 0.03
    weights = [Evaluation(task, days, AHEAD).weights(models[0](windows.known)) for days in (windows.days, other)]
    assert torch.equal(weights[0], weights[1])


def train_small(returns: Tensor, method: str = "pear-exact", epochs: int = 2, rate: float = 1e-3) -> Forecaster:
    split = split_windows(returns, WINDOW, AHEAD)
    task = pear.tasks.portfolio(returns.shape[1], 2.0)
    model = small(returns.shape[1])
    evaluation = Evaluation(task, split.validation.days, AHEAD)
    fit(
        model,
        market_loss(method, task, AHEAD),
        (split.train.known, split.train.days),
        (split.validation.known, split.validation.days),
        evaluation.normalized_regret,
        FitConfig(learning_rate=rate, batch_size=64, max_epochs=epochs, check_every=1, clip_norm=1.0, halve_after=3),
    )
    return model


@pytest.mark.parametrize(
    ("days", "message"),
    [(60, "60 days of returns leave no window of 63 \\+ 21 days for training"), (150, "no window .* for validation")],
)
def test_too_short_a_history_is_refused(days: int, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        split_windows(torch.zeros(days, 2))


def test_a_return_that_is_not_a_number_is_refused() -> None:
    returns = history(300)
    returns[7, 1] = math.nan
    with pytest.raises(ProblemError, match="returns must be finite"):
        split_windows(returns)


@pytest.mark.parametrize("assets", [4, 30])
def test_the_covariance_is_numpys_with_its_least_eigenvalue_raised(assets: int) -> None:
    days = history(16, assets).T[None]
    mu, sigma = moments(days, AHEAD)
    assert torch.allclose(mu[0], days[0, :, -AHEAD:].mean(1))
    plain = torch.from_numpy(np.cov(days[0].numpy()))
    shift = sigma[0] - plain
    least = float(torch.linalg.eigvalsh(plain)[0])
    assert torch.allclose(shift, max(0.0, 1e-4 - least) * torch.eye(assets, dtype=torch.float64), atol=1e-15)
    assert float(torch.linalg.eigvalsh(sigma[0])[0]) >= 1e-4 * (1 - 1e-9)


def test_a_covariance_that_is_large_enough_is_not_shifted() -> None:
    days = 10 * history(50, 3).T[None]
    assert torch.allclose(moments(days, AHEAD)[1][0], torch.from_numpy(np.cov(days[0].numpy())))


def test_a_singular_covariance_is_an_error_where_nothing_may_be_shifted() -> None:
    with pytest.raises(ProblemError, match=r"covariance of sample 0 is singular .*30 names over 16 days"):
        moments(history(16, 30).T[None], AHEAD, floor=0.0)
    twins = history(16, 3).T[None].repeat(2, 1, 1)
    twins[1, 2] = twins[1, 1]
    with pytest.raises(ProblemError, match="covariance of sample 1 is singular \\(1 of 2 are\\)"):
        moments(twins, AHEAD, floor=0.0)


def test_the_forecaster_is_dlinear_with_revin() -> None:
    model = small()
    known, _ = batch(2)
    with torch.no_grad():
        model.scale.copy_(torch.linspace(0.5, 1.5, ASSETS))
        model.offset.copy_(torch.linspace(-0.2, 0.2, ASSETS))
        found = model(known)
    assert torch.equal(found[:, :, :WINDOW], known)
    window = known[1, 3].numpy()
    mean, deviation = window.mean(), np.sqrt(window.var() + 1e-5)
    scale, offset = float(model.scale[3].detach()), float(model.offset[3].detach())
    x = (window - mean) / deviation * scale + offset
    padded = np.concatenate([[x[0]] * 2, x, [x[-1]] * 2])
    trend = np.array([padded[day : day + 5].mean() for day in range(WINDOW)])
    maps = [[p.detach().numpy() for p in layer.parameters()] for layer in (model.trend, model.season)]
    y = sum(W @ part + b for (W, b), part in zip(maps, (trend, x - trend), strict=True))
    assert np.allclose(found[1, 3, WINDOW:], (y - offset) / (scale + 1e-10) * deviation + mean, atol=1e-14)
    with pytest.raises(ProblemError, match="expected \\(B, 5, 12\\) returns of 5 assets over 12 days"):
        model(known[:, :, :5])


def test_training_lowers_regret_where_returns_can_be_forecast() -> None:
    # Names take turns at being good for a month; the window shows whose turn is next.
    days = torch.arange(900)
    wave = torch.stack([torch.sin(2 * math.pi * (days / 16 + k / ASSETS)) for k in range(ASSETS)], 1)
    returns = 0.01 * wave.double() + 0.1 * history(900)
    split = split_windows(returns, WINDOW, AHEAD)
    evaluation = Evaluation(pear.tasks.portfolio(ASSETS, 2.0), split.rebalancing.days, AHEAD)
    known = split.rebalancing.known
    regret = {
        name: evaluation.normalized_regret(train_small(returns, name, 8, 1e-2)(known))
        for name in ("mse", "layer", "pear-mean", "pear-exact")
    }
    before = evaluation.normalized_regret(small()(known))
    assert before > 0.5
    assert all(after < 0.2 * before for after in regret.values()), (before, regret)


def test_clipping_and_halving_are_what_they_say() -> None:
    x, y = torch.ones(4, 1), torch.full((4, 1), 1e3)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    metrics = iter([5.0, 6.0, 6.0, 6.0, 4.0, 4.5])
    fit(
        model,
        torch.nn.MSELoss(),
        (x, y),
        (x, y),
        lambda a, b: next(metrics),
        FitConfig(batch_size=4, max_epochs=6, check_every=1, patience=10, clip_norm=1.0, halve_after=2),
        optimizer=optimizer,
    )
    # Steps of length 1 in the first four epochs; the third bad check in a row halves the rate before the fifth.
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert float(model.weight.detach()) == pytest.approx(4.5)  # the best check was after the fifth
    with pytest.raises(ProblemError, match="clip_norm must be a positive number"):
        fit(model, torch.nn.MSELoss(), (x, y), (x, y), lambda a, b: 0.0, FitConfig(clip_norm=0.0))


# --- backtest --------------------------------------------------------------------------------------------------------


def test_a_backtest_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    returns = torch.tensor([[0.1, 0.0], [0.0, -0.1], [0.2, 0.5]], dtype=torch.float64)
    result = backtest(weights, returns, ahead=2, cost=0.01)
    # Bought for 1 at a cost of 1 %; 0.55 + 0.5, then 0.55 + 0.45; 0.55 of 1 is held of the first at the rebalancing.
    first = 0.99 * 1.05
    second = 0.99 * 1.0
    third = second * (1 - 0.01 * (0.45 + 0.45)) * 1.2
    assert result.value.tolist() == pytest.approx([first, second, third])
    assert result.turnover.tolist() == pytest.approx([1.0, 0.9])
    daily = [first - 1, second / first - 1, third / second - 1]
    assert result.returns.tolist() == pytest.approx(daily)
    assert result.cumulative_return == pytest.approx(third - 1)
    assert result.annual_return == pytest.approx(252 * np.mean(daily))
    assert result.volatility == pytest.approx(np.sqrt(252) * np.std(daily, ddof=1))
    assert result.sharpe == pytest.approx(result.annual_return / result.volatility)
    assert result.max_drawdown == pytest.approx(second / first - 1)
    assert result.mean_turnover == pytest.approx(0.9)


def test_a_first_day_below_the_start_is_a_drawdown() -> None:
    result = backtest(torch.tensor([[1.0]]), torch.tensor([[-0.25]]), ahead=21, cost=0.0)
    assert result.max_drawdown == pytest.approx(-0.25)


@needs_skfolio
def test_measures_agree_with_skfolio() -> None:
    from skfolio import measures

    weights = torch.full((6, ASSETS), 1 / ASSETS, dtype=torch.float64)
    result = backtest(weights, history(6 * AHEAD), AHEAD)
    returns = result.returns.numpy()
    assert result.annual_return == pytest.approx(252 * measures.mean(returns))
    assert result.volatility == pytest.approx(math.sqrt(252) * measures.standard_deviation(returns))
    drawdowns = measures.get_drawdowns(returns, compounded=True)
    assert result.max_drawdown == pytest.approx(-measures.max_drawdown(drawdowns))
    cumulative = measures.get_cumulative_returns(returns, compounded=True)
    assert result.value.tolist() == pytest.approx(cumulative.tolist())


def test_the_deepest_falls_are_found_in_the_order_of_time() -> None:
    value = torch.tensor([1.1, 0.99, 1.1, 1.0, 1.2, 0.6, 0.9])
    falls = deepest_drawdowns(value)
    assert [(fall.peak, fall.trough, fall.end) for fall in falls] == [(0, 1, 2), (4, 5, 6)]
    assert [fall.depth for fall in falls] == pytest.approx([-0.1, -0.5])
    assert deepest_drawdowns(torch.tensor([1.0, 1.1])) == []
    first = [deepest_drawdowns(torch.tensor(value))[0] for value in ([0.9, 1.0], [1.0, 0.9, 1.0])]
    assert [(fall.peak, fall.trough, fall.end) for fall in first] == [(-1, 0, 1), (0, 1, 2)]


def test_backtests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ProblemError, match="10 days with a rebalancing every 4 need 3 portfolios; got 2"):
        backtest(torch.ones(2, 1), torch.zeros(10, 1), 4)
    with pytest.raises(ProblemError, match="lost all its money"):
        backtest(torch.tensor([[2.0, -1.0]]), torch.tensor([[0.0, 2.0]]), 1)


# --- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_the_experiments_run_and_the_report_shows_them(prices: Path) -> None:
    result = reproduce("mvo", "lower-bound-shift", "--data", prices, "--quick", "--seeds", "0-1")
    assert result.exit_code == 0, result.output
    assert "16 of 16 runs to do" in result.output
    with Database(Path("out") / FILE_NAME) as database:
        rows = database.records()
    trained = [row for row in rows if "variant" not in row.settings]
    assert {(row.method, row.seed) for row in trained} == {(m, s) for m in PAPER_PORTFOLIO_METHODS for s in (0, 1)}
    for row in trained:
        assert (
            0
            <= row.metrics["normalized_regret"]
            == pytest.approx(sum(row.metrics["regrets"]) / sum(map(abs, row.metrics["best"])), abs=1e-4)
        )
        assert len(row.metrics["value"]) == AHEAD * len(row.metrics["regrets"])
        assert row.metrics["value"][-1] == pytest.approx(1 + row.metrics["cumulative_return"])
        assert set(row.metrics["yardsticks"]) == {"equal weight", "minimum variance"}
        assert row.metrics["dates"][0] > row.settings["first"]
    for row in rows:
        if row.settings.get("variant"):
            best = [np.array(row.metrics["best"][f"{lower:g}"]) for lower in LOWER_BOUNDS]
            assert all((wide >= narrow - 1e-12).all() for narrow, wide in itertools.pairwise(best))
    again = reproduce("mvo", "--data", prices, "--quick", "--seeds", "0-1")
    assert "0 of 8 runs to do" in again.output
    shown = run("report", "--db", "out", "--out", "report")
    assert shown.exit_code == 0, shown.output
    text = Path("report/report.md").read_text("utf-8")
    page = Path("report/report.html").read_text("utf-8")
    assert not any(word in each for each in (text, page) for word in ("<script", "](javascript"))
    for words in ("Portfolios: 3 names", "a reduced run", "survivorship", "| PEAR, exact | ours, n = 2 |",
                  "| equal weight | yardstick |", "184.19 ± 86.24", "162.4 ± 6.6", "deepest falls"):  # fmt: skip
        assert words in text
    assert page.count('id="portfolio"') == 1
    assert "Value of one unit of money" in page
    section = portfolio_sections(read(Path("out") / FILE_NAME))[0]
    pairs = {row[0]: row for row in section.grids[1].rows}
    assert pairs["Layer (ours) − PEAR, exact"][-1] == "equal"
    assert len(pairs) == 6 + 4 * 2


@pytest.mark.usefixtures("tiny")
def test_prices_that_change_are_not_taken_for_the_old_ones(prices: Path) -> None:
    selection = Selection(methods=["mse"], seeds=[0], quick=True, data=str(prices))
    run = expand(["mvo"], selection)[0]
    prices.write_text(prices.read_text("utf-8").replace(",100.", ",101."), encoding="utf-8")
    assert expand(["mvo"], selection)[0].key != run.key
    with pytest.raises(RunError, match="have changed since the run was asked for"):
        make_market(run)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mvo", "--data", "nowhere.csv"), "there is no file of prices at nowhere.csv"),
        (("mvo", "--gaps", "fill"), "--gaps must be one of error, drop-names, drop-days; got 'fill'"),
        (("mvo", "--methods", "spo+"), "nothing to run"),
        (("mvo", "--tasks", "knapsack"), "nothing to run"),
        (("mv",), "there is no experiment 'mv'"),
    ],
)
def test_what_cannot_be_run_is_said(prices: Path, arguments: tuple[str, ...], message: str) -> None:
    data = () if "--data" in arguments else ("--data", prices)
    result = reproduce(*arguments, *data)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.usefixtures("tiny")
def test_one_name_is_no_portfolio(tmp_path: Path) -> None:
    rows = [f"{day},1.0" for day in working_days("2020-01-01", 640)]
    file = write_prices(tmp_path / "one.csv", rows, "Date,ONLY")
    with pytest.raises(ExperimentError, match="a portfolio needs two names"):
        expand(["mvo"], Selection(data=str(file), quick=True))


def test_pear_stands_for_its_two_modes_and_all_needs_no_prices(prices: Path) -> None:
    runs = expand(["mvo"], Selection(methods=["pear"], seeds=[0], data=str(prices)))
    assert [run.method for run in runs] == ["pear-mean", "pear-exact"]
    assert str(runs[0]) == f"portfolio, pear-mean, {prices}, seed 0"
    assert {run.task for run in expand(["all"], Selection())} == {"shortest_path", "knapsack"}
    assert set(PAPER_PORTFOLIO_METHODS) < set(METHODS)


def test_the_paper_s_portfolio_numbers_are_there() -> None:
    rows = published("published_portfolio")
    assert len(rows) == 44
    assert {row.table for row in rows} == {"mvo", "lower_bound_shift", "accuracy"}


@pytest.mark.usefixtures("tiny")
def test_an_epoch_is_timed_beside_the_error_of_its_gradients(prices: Path) -> None:
    result = run("bench", "epoch", "--data", prices, "--quick", "--out", "bench")
    assert result.exit_code == 0, result.output
    rows = {row["who"]: row for row in json.loads(Path("bench/results.json").read_text("utf-8"))["rows"]}
    assert len(rows) == 6
    assert rows["pear exact"]["ratio"] == 1
    for who in ("pear layer", "pear exact, later epochs", "pear layer, later epochs"):
        assert rows[who]["gradient_error"] < 1e-8
    assert rows["pear mean"]["gradient_error"] is None  # another gradient, on purpose
    refused = run("bench", "epoch", "--data", prices, "--peers", "dqp", "--out", "bench")
    assert refused.exit_code == 2
    assert "dqp takes no part in `pear bench epoch`" in refused.output


# --- intervals -------------------------------------------------------------------------------------------------------


def test_the_interval_covers_a_known_mean_and_shrinks_with_the_pairing() -> None:
    rng = np.random.default_rng(3)
    common, noise = rng.normal(0, 10, 400), rng.normal(0.5, 1, 400)
    difference, low, high = paired_interval(common + noise, common)
    assert difference == pytest.approx(noise.mean())
    spread = 1.96 * noise.std(ddof=1) / 20
    assert (low, high) == pytest.approx((noise.mean() - spread, noise.mean() + spread), abs=0.02)
    with pytest.raises(ProblemError, match="values of the same instances"):
        paired_interval([1.0], [1.0, 2.0])


def test_resampling_seeds_widens_the_interval_where_seeds_differ() -> None:
    rng = np.random.default_rng(0)
    differences = np.array([[1.0], [-1.0], [1.5], [-1.5]]) + 0.01 * rng.normal(size=(4, 50))
    narrow = paired_interval(differences.mean(0), np.zeros(50))[1:]
    wide = normalized_difference(differences, 0 * differences, np.ones_like(differences), shared=True)
    assert narrow[1] - narrow[0] < 0.01
    assert wide.low < -0.8
    assert wide.high > 0.8


def test_more_names_than_days_take_a_shorter_way_to_the_same_gradient() -> None:
    """The gradient by the covariance has rank two; computed from its factor or as a matrix, it is the same."""
    random = torch.Generator().manual_seed(0)
    predicted, true = (0.05 * torch.randn(4, 12, 9, generator=random, dtype=torch.float64) for _ in range(2))
    task = pear.tasks.portfolio(12, 2.0)
    loss = PortfolioPEARLoss(task, "exact", ahead=3)
    short = predicted.clone().requires_grad_()
    value = loss(short, true)
    value.backward()
    long = predicted.clone().requires_grad_()
    (mu, sigma), (true_mu, true_sigma) = moments(long, 3), moments(true, 3)
    curvatures = {"Q": task.curvature(sigma), "true_Q": task.curvature(true_sigma)}
    plain = pear.PEARLoss(task.problem, smoothing=0.0, injection=0.0, guidance=0.0)(
        task.cost(mu), task.cost(true_mu), **curvatures
    )
    plain.backward()
    assert value.item() == pytest.approx(plain.item(), rel=1e-12)
    assert float(long.grad.abs().max()) > 0
    torch.testing.assert_close(short.grad, long.grad, rtol=1e-10, atol=1e-14)
