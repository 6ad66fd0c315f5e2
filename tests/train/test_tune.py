"""``tune``, a race over losses and settings: which candidates continue, how they are compared, and the result."""

from __future__ import annotations

import copy
import math
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.train import FitConfig, TrainingError, TuneProgress, TuneResult, fit, successive_halving
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch
from pear.train.training_loss import training_loss_smoothing_multiple
from pear.train.tune import _tune_stages, default_candidates
from pear.train.tune_candidate import TimeLeft, TuneCandidate, describe_candidate

TASK = pear.tasks.shortest_path((3, 3))
UNLIMITED = TimeLeft(None, None)
SHORT = FitConfig(max_epochs=4, check_every=1)
FEW = [
    {"method": "mse"},
    {"method": "spo+", "mse_weight": 0.0},
    {"method": "pear", "smoothing": "auto", "injection": 0.1, "guidance": 1.0},
    {"method": "pear", "smoothing": "auto*3", "injection": 0.0, "guidance": 0.0},
    {"method": "pear", "smoothing": 0.5},
]


@pytest.fixture(scope="module")
def samples() -> tuple[Tensor, Tensor]:
    return tuple(TASK.samples(120, degree=6, seed=1))


@pytest.fixture(scope="module")
def tuned(samples: tuple[Tensor, Tensor]) -> TuneResult:
    return pear.tune(TASK.problem, *samples, candidates=FEW, config=SHORT)


def test_the_best_of_the_race_comes_back_trained(tuned: TuneResult, samples: tuple[Tensor, Tensor]) -> None:
    features, costs = (part[96:] for part in samples)
    with torch.no_grad():
        regret = pear.normalized_regret(TASK.problem, tuned.model(features), costs)
    rows = tuned.table()
    assert regret == pytest.approx(rows[0].regret, rel=1e-9)
    assert tuned.history.best is not None
    assert tuned.history.best.metric == rows[0].regret == min(row.regret for row in rows)
    assert [row.regret for row in rows] == sorted(row.regret for row in rows)
    assert {row.candidate for row in rows} == {describe_candidate(one) for one in FEW}
    assert describe_candidate(tuned.best) == rows[0].candidate
    assert {row.epochs for row in rows} == {3, 4}  # 5 candidates for 3 epochs, the better 3 of them for 4
    assert [row.epochs for row in rows].count(4) == 3
    assert all(row.seconds > 0 for row in rows)


def test_the_table_can_be_read(tuned: TuneResult) -> None:
    lines = str(tuned).splitlines()
    assert lines[0].split() == ["candidate", "epochs", "validation", "regret", "seconds"]
    assert len(lines) == 1 + len(FEW)
    assert lines[1].startswith(tuned.table()[0].candidate)
    assert f"{tuned.table()[0].regret:.5g}" in lines[1]


def test_the_loss_is_fresh_and_settled(samples: tuple[Tensor, Tensor]) -> None:
    settings = {"method": "pear", "smoothing": "auto*3", "guidance": 1.0}
    found = pear.tune(TASK.problem, *samples, candidates=[settings], config=SHORT)
    picked = pear.PEARLoss(TASK.problem, smoothing="auto").calibrate(samples[1][:96])
    assert isinstance(found.loss, pear.PEARLoss)
    assert found.loss.chosen_smoothing == pytest.approx(3 * picked)
    assert found.loss.current_guidance == 1.0  # as before the first step
    assert found.loss.samples == 0
    assert found.best == settings


def test_a_seed_fixes_the_race_and_touches_no_global_state(tuned: TuneResult, samples: tuple[Tensor, Tensor]) -> None:
    state = torch.get_rng_state()
    again, other = (
        pear.tune(TASK.problem, *samples, candidates=FEW, config=replace(SHORT, seed=seed)) for seed in (0, 1)
    )
    assert torch.equal(state, torch.get_rng_state())
    assert [row[:3] for row in again.rows] == [row[:3] for row in tuned.rows]
    assert torch.equal(again.model.weight, tuned.model.weight)  # type: ignore[arg-type]
    assert [row.regret for row in other.rows] != [row.regret for row in tuned.rows]


def test_stages_are_one_run(samples: tuple[Tensor, Tensor]) -> None:
    """A candidate that passes all stages ends with the result of ``fit``."""
    config, chosen = FitConfig(max_epochs=12, check_every=2, patience=50, start="standardised"), FEW[2:]
    found = pear.tune(TASK.problem, *samples, candidates=chosen, config=config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(5, TASK.problem.n)
    train, validation = ([part[some] for part in samples] for some in (slice(96), slice(96, None)))
    history = fit(model, found.loss, train, validation, TASK.normalized_regret, config)  # type: ignore[arg-type]
    assert [check.epoch for check in found.history.checks] == [check.epoch for check in history.checks]
    for mine, theirs in zip(found.history.checks, history.checks, strict=True):
        assert mine.metric == pytest.approx(theirs.metric, rel=1e-6)
    assert torch.equal(model.weight, found.model.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "epochs", "stages"),
    [
        (12, 500, [(12, 21), (6, 41), (3, 81), (2, 500)]),
        (12, 30, [(12, 21), (6, 30)]),
        (12, 5, [(12, 5)]),
        (2, 500, [(2, 500)]),
        (1, 500, [(1, 500)]),
        (3, 500, [(3, 21), (2, 500)]),
    ],
)
def test_each_stage_halves_the_field_and_doubles_the_epochs(count: int, epochs: int, stages: Any) -> None:
    assert _tune_stages(count, FitConfig(max_epochs=epochs)) == stages


def test_the_worse_half_is_dropped_by_validation_alone(
    samples: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric alone decides who continues: a candidate with a forged metric wins, whatever its loss."""
    bad = {"method": "pear", "smoothing": 5.0}
    trained: list[str] = []
    train_candidate = successive_halving.train_tune_candidate

    def spied(send: Any, one: TuneCandidate, *args: Any) -> TuneCandidate:
        trained.append(describe_candidate(one.settings))
        train_candidate(send, one, *args)
        if one.settings == bad and one.history.best is not None:
            object.__setattr__(one.history.best, "metric", -1.0)
        return one

    monkeypatch.setattr(successive_halving, "train_tune_candidate", spied)
    found = pear.tune(TASK.problem, *samples, candidates=[*FEW[:3], bad], config=SHORT)
    assert found.best == bad
    assert trained.count(describe_candidate(bad)) == 2
    assert len(trained) == 4 + 2


def test_the_model_that_is_given_is_copied_and_used(samples: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, TASK.problem.n))
    before = copy.deepcopy(model.state_dict())
    found = pear.tune(TASK.problem, *samples, model=model, candidates=FEW[:3], config=SHORT)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(found.model, nn.Sequential)
    assert not torch.equal(found.model.state_dict()["0.weight"], before["0.weight"])


def test_validation_may_be_a_share_or_samples(samples: tuple[Tensor, Tensor]) -> None:
    seen: list[int] = []

    def metric(predicted: Tensor, true: Tensor) -> float:
        seen.append(len(true))
        return float(((predicted - true) ** 2).mean())

    features, costs = (part.numpy() for part in samples)  # arrays are taken as well
    for validation in (None, 0.5, (features[:7], costs[:7])):
        pear.tune(TASK.problem, features, costs, validation=validation, candidates=FEW[:1], config=SHORT, metric=metric)
    assert seen == [24] * 4 + [60] * 4 + [7] * 4


def test_progress_says_where_the_race_is(samples: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[TuneProgress] = []
    pear.tune(TASK.problem, *samples, candidates=FEW[:3], config=SHORT, progress=seen.append)
    assert [(now.stage, now.stages, now.number, now.count) for now in seen] == [
        *[(1, 2, number, 3) for number in (1, 2, 3) for _ in range(3)],
        *[(2, 2, number, 2) for number in (1, 2)],
    ]
    assert str(seen[0]).startswith("stage 1/2, candidate 1/3: MSE, epoch 1, validation regret ")
    best = [now.best for now in seen]
    assert best == sorted(best, reverse=True)
    assert capsys.readouterr() == ("", "")  # nothing is printed


def test_ctrl_c_ends_the_race_with_the_best_so_far(samples: tuple[Tensor, Tensor]) -> None:
    def stop(now: TuneProgress) -> None:
        if now.number == 3:
            raise KeyboardInterrupt

    found = pear.tune(TASK.problem, *samples, candidates=FEW, config=SHORT, progress=stop)
    assert found.interrupted
    assert math.isfinite(found.table()[0].regret)
    assert [row.epochs for row in found.rows][3:] == [0, 0]
    assert "nan" in str(found).splitlines()[-1]


def test_a_candidate_that_diverges_is_named_and_the_others_go_on(
    samples: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pear.losses.mse.MSELoss.forward", lambda self, predicted, true, keys=None: predicted.sum() * math.nan
    )
    found = pear.tune(TASK.problem, *samples, candidates=FEW[:3], config=SHORT)
    failed = found.table()[-1]
    assert (failed.candidate, math.isnan(failed.regret)) == ("MSE", True)
    assert "the loss is nan in epoch 1" in failed.note
    assert "the loss is nan in epoch 1" in str(found)
    with pytest.raises(TrainingError, match="every candidate failed; the first one: the loss is nan"):
        pear.tune(TASK.problem, *samples, candidates=FEW[:1], config=SHORT)


def test_fields_per_sample_are_split_with_the_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 3, generator=generator)
    costs = features @ torch.randn(3, 4, generator=generator) + 0.1
    problem = pear.Problem(A=torch.ones(1, 4), b=1 + torch.rand(40, 1, generator=generator), lb=0.0, ub=1.0)
    found = pear.tune(problem, features, costs, candidates=FEW[:3], config=SHORT)
    with torch.no_grad():
        regret = pear.normalized_regret(problem[32:], found.model(features[32:]), costs[32:])
    assert regret == pytest.approx(found.table()[0].regret, rel=1e-9)
    with pytest.raises(pear.ProblemError, match="put the validation samples last"):
        pear.tune(problem, features, costs, validation=(features, costs))
    with pytest.raises(pear.ProblemError, match="for 40 samples, and X has 39 rows"):
        pear.tune(problem, features[1:], costs[1:])


def test_every_method_races_on_a_problem_of_ones_own() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 3, generator=generator)
    costs = features @ torch.randn(3, 4, generator=generator) + 0.1
    problem = pear.Problem(A=torch.ones(1, 4), b=1 + torch.rand(40, 1, generator=generator), lb=0.0, ub=1.0)
    names = {row.name for row in pear.losses.METHODS}
    # DBB's interpolation is published for two tasks alone
    candidates = [{"method": name} | ({"interpolation": 10.0} if name == "dbb" else {}) for name in names]
    found = pear.tune(problem, features, costs, candidates=candidates, config=SHORT)
    assert {row.candidate: row.note for row in found.rows} == {describe_candidate(one): "" for one in candidates}
    assert all(math.isfinite(row.regret) for row in found.rows)


def test_candidates_may_be_classes_functions_and_losses(samples: tuple[Tensor, Tensor]) -> None:
    """Classes, functions and losses as candidates give the results of their names; the best can be passed again."""

    def gently(problem: pear.Problem) -> nn.Module:
        return pear.losses.SPOPlusLoss(problem, mse_weight=0.5)

    ready = pear.losses.SPOPlusLoss(TASK.problem, mse_weight=0.5)
    given = [pear.losses.SPOPlusLoss, gently, ready, "mse", {"method": pear.PEARLoss, "smoothing": "auto*3"}]
    named = [
        {"method": "spo+", "mse_weight": 0.0},
        *2 * [{"method": "spo+", "mse_weight": 0.5}],
        {"method": "mse"},
        {"method": "pear-guided", "smoothing": "auto*3"},
    ]
    found, same = (pear.tune(TASK.problem, *samples, candidates=them, config=SHORT) for them in (given, named))
    assert [row.regret for row in found.rows] == [row.regret for row in same.rows]
    titles = [row.candidate for row in found.rows]
    assert titles[:2] == ["SPOPlusLoss", "gently"]
    assert titles[2].startswith("SPOPlusLoss(Problem(min, n=12")
    assert titles[3:] == ["MSE", "PEARLoss smoothing=auto*3"]
    assert ready.chosen_unit is None  # it was copied
    again = pear.tune(TASK.problem, *samples, candidates=[found.best], config=SHORT)
    assert again.rows[0].candidate == found.table()[0].candidate


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (3, "a method must be a name, a class of losses, a function from the problem to a loss, or a loss; got 3"),
        ({"smoothing": 1.0}, "a candidate must name its method under 'method'"),
        ("spo", "unknown method 'spo'"),
        ({"method": nn.MSELoss(), "sigma": 1.0}, "has no option 'sigma'; its options: none"),
    ],
)
def test_what_is_no_candidate(candidate: Any, said: str, samples: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(pear.ProblemError, match=re.escape(said)):
        pear.tune(TASK.problem, *samples, candidates=[candidate], config=SHORT)


def test_a_candidate_trains_where_its_name_is_unknown(samples: tuple[Tensor, Tensor]) -> None:
    """A worker on another machine can train a loss although its method was registered only in this process."""
    train = MemorySamples(SampleBatch(*samples, None))
    common = (
        replace(SHORT, start="standardised"),
        train,
        train,
        lambda predicted, true: float((predicted - true).abs().mean()),
    )
    loss, model = pear.losses.MSELoss(TASK.problem), nn.Linear(5, 12)
    one = TuneCandidate({"method": "known elsewhere"}, loss, model, shuffled=False)
    assert successive_halving.train_tune_candidate(print, one, 2, common, False, UNLIMITED).history.epochs == 2


def test_a_task_is_no_problem(samples: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(pear.ProblemError, match=r"pass its problem: task\.problem"):
        pear.tune(TASK, *samples)  # type: ignore[arg-type]


def test_default_candidates_suit_the_problem() -> None:
    linear = default_candidates(TASK.problem)
    assert len(linear) == 12
    assert {one["method"] for one in linear} == {"mse", "spo+", "pear"}
    assert len({describe_candidate(one) for one in linear}) == 12
    whole = default_candidates(pear.tasks.random_knapsack(items=5, dimensions=1, seed=0).problem)
    assert "spo+relaxed" in {one["method"] for one in whole}
    curved = default_candidates(pear.Problem(Q=np.eye(2), lb=0.0, ub=1.0))
    assert {one["method"] for one in curved} == {"mse", "pear"}
    assert {one["smoothing"] for one in curved if "smoothing" in one} == {"auto"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"candidates": []}, "at least one; got none"),
        ({"candidates": [{"smoothing": 1.0}]}, "must name its method"),
        ({"candidates": [{"method": "perl"}]}, "unknown method 'perl'"),
        ({"candidates": [{"method": "pear", "sigma": 1.0}]}, "has no option 'sigma'"),
        ({"candidates": [{"method": "pear", "smoothing": "auto*x"}]}, r"'auto\*3'; got 'auto\*x'"),
        ({"validation": 1.0}, "share between 0 and 1"),
        ({"validation": True}, "share between 0 and 1"),
        (
            {"validation": (torch.ones(2, 5), torch.ones(3, 12))},
            r"validation must be .*got shapes \(2, 5\) and \(3, 12\)",
        ),
        ({"X": torch.ones(3, 5)}, r"X and C must be .*costs \(N, 12\)"),
        ({"C": torch.ones(120, 11)}, r"got shapes \(120, 5\) and \(120, 11\)"),
        ({"X": torch.ones(120, 12, 5)}, "need a model of their own"),
        ({"X": torch.ones(1, 5), "C": torch.ones(1, 12)}, "two samples at least"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str, samples: tuple[Tensor, Tensor]) -> None:
    given: dict[str, Any] = {"X": samples[0], "C": samples[1]} | wrong
    with pytest.raises(pear.ProblemError, match=message):
        pear.tune(TASK.problem, **given)


def test_multiples_of_auto() -> None:
    assert training_loss_smoothing_multiple("auto*0.3") == 0.3
    assert training_loss_smoothing_multiple("auto") is None
    assert training_loss_smoothing_multiple(3.0) is None
    for wrong in ("auto*", "auto*-1", "auto*inf"):
        with pytest.raises(pear.ProblemError, match="multiple such as"):
            training_loss_smoothing_multiple(wrong)


def test_no_file_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: tuple[Tensor, Tensor]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pear.tune(TASK.problem, *samples, candidates=FEW[:1], config=SHORT)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["features", "costs", "problem"])
def test_errors_name_held_out_samples_by_their_row(what: str, samples: tuple[Tensor, Tensor]) -> None:
    features, costs = (part.clone() for part in samples)
    problem = TASK.problem
    if what == "problem":
        b = problem.b.repeat(len(costs), 1)
        b[110] += 1.0
        problem = pear.Problem(A=problem.A, b=b, lb=problem.lb, ub=problem.ub)
    else:
        (features if what == "features" else costs)[110, 0] = torch.nan
    with pytest.raises(pear.SolveError, match=r"^1 of 24 samples could not be solved .*: sample 110 \(") as error:
        pear.tune(problem, features, costs, candidates=FEW[:1], config=SHORT)
    assert error.value.samples == [110]
    loss, config = pear.PEARLoss(problem, smoothing=0.1), replace(SHORT, start="given")
    with pytest.raises(pear.PearError, match=r"sample 110\b"):
        fit(nn.Linear(5, problem.n), loss, (features, costs), config=config)
