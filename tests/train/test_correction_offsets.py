"""The forecasts of a base that a race corrects: which copies made them, how many, and that the better kind wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import pear
from pear.errors import TrainingError
from pear.train.base_copies import BaseCopies
from pear.train.base_forecast import OUT_OF_FOLD, OWN, held_out_base_forecast, make_base_forecast
from pear.train.blocked_folds import FOLDS, blocked_folds
from pear.train.correction import Correction
from pear.train.history import Progress
from pear.train.long_table import group_long_table
from pear.train.racing import race_samples, race_without_base
from pear.train.racing.race_samples import CORRECTIONS
from pear.train.racing.race_without_base import ALONE

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

from sklearn.base import BaseEstimator, RegressorMixin  # noqa: E402
from sklearn.dummy import DummyRegressor  # noqa: E402
from sklearn.ensemble import RandomForestRegressor  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.neighbors import KNeighborsRegressor  # noqa: E402

TASK = pear.tasks.shortest_path((3, 3))
K = TASK.problem.n
COUNT = 23  # no multiple of the number of folds


class Recorder(RegressorMixin, BaseEstimator):
    """Forecasts the samples that it was fitted to, as a number with a binary digit for each of them."""

    fits: ClassVar[list[set[int]]] = []

    def fit(self, X: Any, y: Any) -> Recorder:
        """The first feature of a row is the number of its sample."""
        self.seen_ = {int(number) for number in X[:, 0]}
        Recorder.fits.append(self.seen_)
        self.several_ = np.ndim(y) == 2
        return self

    def predict(self, X: Any) -> Any:
        value = float(sum(2**number for number in self.seen_))
        return np.full((len(X), K) if self.several_ else len(X), value)


def seen(value: float) -> set[int]:
    """The samples that the copy with this forecast was fitted to."""
    return {number for number in range(COUNT) if int(value) >> number & 1}


def offsets_of_recorder(gap: int, long: bool) -> Any:
    """The offsets of samples whose first feature is their number; the rows of a long table are mixed."""
    Recorder.fits = []
    if not long:
        rows = np.arange(COUNT, dtype=float)[:, None]
        return make_base_forecast(Recorder(), rows, np.zeros((COUNT, K)), gap=gap).offsets
    first = np.repeat(np.arange(COUNT), K)[np.random.default_rng(0).permutation(COUNT * K)]
    groups = group_long_table(first, COUNT * K, K)
    numbers = {name: number for number, name in enumerate(groups.ids)}
    rows = np.array([float(numbers[name]) for name in first])[:, None]
    return make_base_forecast(Recorder(), rows, np.zeros(COUNT * K), groups, gap).offsets


def by_sample(offsets: Any, values: Any) -> list[set[int]]:
    """The samples that the copy that forecast each sample was fitted to."""
    rows = values if offsets.copies.groups is None else offsets.copies.groups.gather(values)
    assert (rows == rows[:, :1]).all()
    return [seen(row[0]) for row in rows]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("gap", [0, 1])
def test_no_forecast_of_a_fold_comes_from_a_copy_that_saw_the_row_or_held_out_rows(gap: int, long: bool) -> None:
    offsets = offsets_of_recorder(gap, long)
    blocks = list(blocked_folds(COUNT, FOLDS, gap))
    whole = by_sample(offsets, offsets.forecasts[OUT_OF_FOLD])
    for others, block in blocks:
        assert all(whole[number] == set(others.tolist()) for number in block.tolist())
    assert by_sample(offsets, offsets.forecasts[OWN]) == [set(range(COUNT))] * COUNT
    for kept, held_out in blocks:
        made = {kind: by_sample(offsets, rows) for kind, rows in offsets.in_fold(kept.numpy(), nested=True).items()}
        fold = set(kept.tolist())
        assert made[OWN] == [fold] * COUNT
        for others, block in blocks:
            for number in fold & set(block.tolist()):
                assert made[OUT_OF_FOLD][number] == fold & set(others.tolist())
                assert number not in made[OUT_OF_FOLD][number]
                assert not made[OUT_OF_FOLD][number] & set(held_out.tolist())
        assert all(made[OUT_OF_FOLD][number] == fold for number in held_out.tolist())


def test_copies_are_fitted_once_to_the_same_samples() -> None:
    offsets = offsets_of_recorder(0, False)
    assert len(Recorder.fits) == 1 + FOLDS
    for kept, _ in blocked_folds(COUNT, FOLDS):
        offsets.in_fold(kept.numpy(), nested=False)
    assert len(Recorder.fits) == 1 + FOLDS
    for kept, _ in blocked_folds(COUNT, FOLDS):
        offsets.in_fold(kept.numpy(), nested=True)
    assert len(Recorder.fits) == 1 + FOLDS + race_samples.NESTED_FITS
    assert len({frozenset(fit) for fit in Recorder.fits}) == len(Recorder.fits)


def test_a_race_of_five_folds_fits_a_base_sixteen_times(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fit = Ridge.fit

    def fit_counted(self: Any, X: Any, y: Any) -> Any:
        sizes.append(len(X))
        return fit(self, X, y)

    monkeypatch.setattr(Ridge, "fit", fit_counted)
    regressor(Ridge()).fit(*days(60))
    assert sorted(sizes) == [36] * race_samples.NESTED_FITS + [48] * FOLDS + [60]
    sizes.clear()
    regressor(Ridge(), validation_fraction=0.2).fit(*days(60))
    assert sorted(sizes) == [36] * 4 + [48] * FOLDS + [60]


def test_copies_that_are_not_nested_forecast_training_rows_as_in_the_whole_training() -> None:
    offsets = offsets_of_recorder(0, False)
    kept = next(blocked_folds(COUNT, FOLDS))[0].numpy()
    made = offsets.in_fold(kept, nested=False)
    np.testing.assert_array_equal(made[OUT_OF_FOLD][kept], offsets.forecasts[OUT_OF_FOLD][kept])
    np.testing.assert_array_equal(made[OUT_OF_FOLD][20:], made[OWN][20:])


@pytest.mark.parametrize("samples", [np.arange(3), np.array([0, 4]), np.array([2])])
def test_few_samples_and_wide_gaps_leave_copies_something_to_learn_from(samples: Any) -> None:
    rows = np.arange(5.0)[:, None]
    values = BaseCopies(Ridge(), rows, rows[:, 0]).forecast_out_of_fold(samples, gap=3)
    assert np.isfinite(values[samples]).all()
    assert np.isnan(values).sum() == 5 - len(samples)


def days(count: int) -> tuple[Any, Any]:
    """Features and costs of a task."""
    x, c = (np.asarray(part, dtype=float) for part in TASK.samples(count, degree=6, noise=0.25, seed=5))
    return x, c


def drifting_days(seed: int) -> tuple[Any, Any]:
    """300 days with costs on a random walk. The features are the task's, the costs of the day before, and noise."""
    x, c = (np.asarray(part, dtype=float) for part in TASK.samples(301, degree=6, noise=0.25, seed=seed))
    rng = np.random.default_rng(seed)
    c = c * np.exp(rng.normal(size=(301, K)).cumsum(0) / 301**0.5)
    return np.column_stack([x[1:], c[:-1], rng.normal(size=(300, 40))]), c[1:]


def regressor(base: Any, **settings: Any) -> Any:
    return pear.DecisionRegressor(**{"problem": TASK.problem, "base": base, "max_epochs": 8, **settings})


def forest() -> Any:
    return RandomForestRegressor(5, min_samples_leaf=3, random_state=0, n_jobs=1)


def winner_of(model: Any) -> str:
    winner = min(model.history_.race, key=lambda row: row.bound).contender
    assert isinstance(winner, str)
    return winner


def test_days_that_drift_are_corrected_where_forecasts_of_copies_that_saw_the_held_out_days_are_not() -> None:
    before, after, train, later = [], [], slice(200), slice(200, None)
    for seed in range(2):
        x, c = drifting_days(seed)
        base, table = Ridge(0.1).fit(x[train], c[train]), held_out_base_forecast(Ridge(0.1), x[train], c[train])
        old = regressor(None).fit(x[train], c[train], base_forecast=table)
        assert old.history_.epochs == 0
        new = regressor(Ridge(0.1)).fit(x[train], c[train])
        bounds = {row.contender: row.bound for row in sorted(new.history_.race, key=lambda row: -row.bound)}
        assert bounds[CORRECTIONS[OWN]] < 0
        assert winner_of(new) != "start"
        before.append(pear.normalized_regret(TASK.problem, base.predict(x[later]), c[later]))
        after.append(-new.score(x[later], c[later]))
    assert np.mean(after) < 0.95 * np.mean(before)


def test_both_corrections_compete_and_the_note_says_which_won() -> None:
    x, c = drifting_days(0)
    model = regressor(Ridge(1.0)).fit(x, c)
    names = [row.contender for row in model.history_.race]
    assert names[:3] == ["start", *CORRECTIONS.values()]
    said = {
        "start": "the base is not corrected",
        CORRECTIONS[OWN]: "the base's own forecasts of the training rows are corrected",
        CORRECTIONS[OUT_OF_FOLD]: "forecasts of the training rows by copies fitted without the row are corrected",
        ALONE: "the base is left out, and forecasts are those of a model without it",
    }
    assert model.history_.note.endswith(said[winner_of(model)])
    assert "by copies fitted without the row" in model.history_.note


@pytest.mark.parametrize("validation", [False, True])
def test_a_base_is_left_out_if_a_model_without_it_decides_clearly_better(validation: bool, tmp_path: Path) -> None:
    x, c = days(260)
    train, later = slice(160), slice(160, 260)
    c = c * np.random.default_rng(0).uniform(0.1, 2.0, size=c.shape)
    noisy = KNeighborsRegressor(1)  # no correction undoes the noise of the costs of another day
    held_out = (x[200:], c[200:]) if validation else None
    found = regressor(noisy, max_epochs=16).fit(x[train], c[train], held_out)
    names = [row.contender for row in found.history_.race]
    assert names[-1] == winner_of(found) == ALONE
    assert found.history_.best.metric == found.history_.race[-1].metric
    assert "the model without the base" in found.history_.choice
    assert not isinstance(found.model_[1], Correction)
    plain = regressor(None, max_epochs=16).fit(x[train], c[train], held_out)
    assert -found.score(x[later], c[later]) < 1.25 * -plain.score(x[later], c[later]) + 0.01
    found.save(tmp_path / "a.pear")
    for base in (None, found.base_):  # whether a base is left out is no reason to change a call of load
        again = pear.DecisionRegressor.load(tmp_path / "a.pear", base=base)
        np.testing.assert_array_equal(again.predict(x), found.predict(x))
    found.partial_fit(x[later], c[later])
    assert np.isfinite(found.predict(x)).all()


def test_ctrl_c_in_the_race_without_the_base_keeps_the_correction_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class StoppedRace(race_without_base.Race):
        def _run_contenders(self, loss: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(race_without_base, "Race", StoppedRace)
    X, C = days(120)
    found = regressor(DummyRegressor()).fit(X, C)
    assert found.history_.interrupted
    assert all(row.contender != ALONE for row in found.history_.race)
    assert found._corrects == "base"


def test_a_network_may_do_without_its_base() -> None:
    x, c = days(60)
    found = regressor(DummyRegressor(), model="mlp", hidden_layer_sizes=(8,)).fit(x, c)
    assert found.history_.race[-1].contender == ALONE
    assert np.isfinite(found.predict(x)).all()


def test_long_tables_may_do_without_their_base() -> None:
    x, c = days(60)
    rows, groups = np.column_stack([np.repeat(x, K, axis=0), np.tile(np.eye(K), (60, 1))]), np.repeat(np.arange(60), K)
    found = regressor(DummyRegressor()).fit(rows, c.ravel(), groups=groups)
    assert found.history_.race[-1].contender == ALONE
    assert found.decide(rows, groups=groups).shape == (60, K)


def test_a_module_of_the_user_stays_a_correction() -> None:
    x, c = days(60)
    module = regressor(DummyRegressor(), model=torch.nn.Linear(5, K).double()).fit(x, c)
    assert ALONE not in {row.contender for row in module.history_.race}
    assert isinstance(module.model_[1], Correction)


def test_a_base_that_was_fitted_and_is_as_good_on_these_rows_as_copies_is_corrected_as_it_is() -> None:
    x, c = days(260)
    model = regressor(Ridge().fit(x, c)).fit(x, c)
    assert {row.contender for row in model.history_.race} == {"start", "correction"}
    assert "its own forecasts are corrected" in model.history_.note


def test_with_validation_rows_both_corrections_are_judged_on_forecasts_of_the_base() -> None:
    x, c = days(260)
    model = regressor(forest()).fit(x[:200], c[:200], (x[200:], c[200:]))
    assert {*CORRECTIONS.values()} < {row.contender for row in model.history_.race}
    before = pear.normalized_regret(TASK.problem, forest().fit(x[:200], c[:200]).predict(x[200:]), c[200:])
    assert model.history_.race[0].metric == pytest.approx(before, rel=1e-6)
    assert model.history_.best.metric == pytest.approx(-model.score(x[200:], c[200:]), rel=1e-6)


@pytest.mark.parametrize("groups", [False, True])
def test_the_start_is_judged_by_copies_that_have_not_seen_the_held_out_rows(groups: bool) -> None:
    x, c = days(60)
    if groups:
        rows = np.column_stack([np.repeat(x, K, axis=0), np.tile(np.arange(K), len(x))])
        model = regressor(forest()).fit(rows, c.ravel(), groups=np.repeat(np.arange(len(x)), K))
    else:
        rows, model = x, regressor(forest()).fit(x, c)
    forecast = np.empty_like(c)
    for kept, held_out in blocked_folds(60, FOLDS):
        a, b = (part.numpy() for part in (kept, held_out))
        if groups:
            flat = [(part[:, None] * K + np.arange(K)).ravel() for part in (a, b)]
            forecast[b] = forest().fit(rows[flat[0]], c.ravel()[flat[0]]).predict(rows[flat[1]]).reshape(-1, K)
        else:
            forecast[b] = forest().fit(x[a], c[a]).predict(x[b])
    regret = pear.normalized_regret(TASK.problem, forecast, c)
    assert model.history_.race[0].metric == pytest.approx(regret, rel=1e-6)


def test_a_slow_base_has_no_nested_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    x, c = days(60)
    monkeypatch.setattr(race_samples, "NESTED_SECONDS", 0.0)
    model = regressor(forest()).fit(x, c)
    assert "the base is slow to fit" in model.history_.note
    assert {*CORRECTIONS.values()} < {row.contender for row in model.history_.race}


def test_without_a_race_the_kind_is_chosen_by_errors() -> None:
    x, c = (torch.from_numpy(part) for part in days(60))
    model, config = torch.nn.Linear(5, K).double(), pear.FitConfig(max_epochs=2, start="given")
    history = pear.fit(model, pear.PEARLoss(TASK.problem), (x, c), config=config, base=forest())
    assert not history.race
    assert "the forecasts of the copies are corrected" in history.note


def correct(path: Path | None, progress: Any = None, base: Any = None) -> tuple[Any, Any]:
    x, c = (torch.from_numpy(part) for part in days(80))
    torch.manual_seed(0)
    model, config = torch.nn.Linear(5, K).double(), pear.FitConfig(max_epochs=16)
    base = base or forest()
    loss = pear.PEARLoss(TASK.problem)
    history = pear.fit(model, loss, (x, c), config=config, base=base, checkpoint=path, progress=progress)
    return model.state_dict(), history


def test_a_resumed_race_of_corrections_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(now: Progress) -> None:
        if now.epoch == 12 and now.part == "loss":
            raise KeyboardInterrupt

    expected, history = correct(None)
    assert correct(tmp_path / "run", stop)[1].interrupted
    monkeypatch.setattr(race_samples, "NESTED_SECONDS", 0.0)  # the resumed run keeps to what the first one chose
    resumed, again = correct(tmp_path / "run")
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)
    assert [str(row) for row in again.race] == [str(row) for row in history.race]
    assert (again.choice, again.note) == (history.choice, history.note)
    ended = correct(tmp_path / "run")[1]
    assert (ended.choice, ended.note) == (history.choice, history.note)
    with pytest.raises(TrainingError, match="does not belong to this data"):
        correct(tmp_path / "run", base=Ridge())
