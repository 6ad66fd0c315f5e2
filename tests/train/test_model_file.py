"""Model files: JSON and arrays, no pickle; truncated, altered and foreign files are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy import sparse

import pear
from pear.errors import DataError, ProblemError
from pear.train import safetensors_file

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

SHORT: dict[str, Any] = {"max_epochs": 5, "check_every": 2}
rng = np.random.default_rng(0)
X = rng.normal(size=(50, 3))
TABLE = pd.DataFrame(X, columns=["wind", "sun", "load"])


def values(k: int) -> np.ndarray[Any, Any]:
    return np.exp(X @ np.random.default_rng(k).normal(size=(3, k)))


def budgets() -> pear.Problem:
    groups = sparse.csr_array(sparse.kron(sparse.eye_array(60), np.ones((1, 10))))
    return pear.Problem(G=groups, h=np.full(60, 3.5), lb=-1.0, ub=np.where(np.arange(600) % 2, 1.0, 2.0))


PROBLEMS = {
    "simplex": lambda: pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0),
    "knapsack": lambda: pear.Problem(G=[[1.0, 2.0, 3.0]], h=[4.0], lb=0, ub=1, sense="max", integer=[0, 2]),
    "curved": lambda: pear.Problem(Q=np.diag([1.0, 2.0]), lb=-np.inf, ub=[1.0, np.inf]),
    "sparse": budgets,
    "per sample": lambda: pear.Problem(A=np.ones((1, 4)), b=np.linspace(1, 2, 50)[:, None], lb=0.0),
    "one": lambda: pear.Problem(lb=-1.0, ub=1.0, n=1),
    "mapped": lambda: pear.Model(
        pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0),
        cost_map=pear.CostMap(
            sparse.csr_array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [0.1, 0.2, 0.3], ["day", "night"]
        ),
        offset=2.5,
        variables=("a", "b", "c"),
        rows=("sum",),
        constraints=("sum",),
        constraint_signs=(-1,),
        layout={"first": torch.tensor(0), "rest": torch.tensor([1, 2])},
        report="three of them",
    ),
    "named": lambda: pear.Model(pear.Problem(lb=0, ub=1, n=2), known=torch.tensor([1.0, 2.0]).double()),
    "known per sample": lambda: pear.Model(
        pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0), cost_map=pear.CostMap(known=np.random.rand(50, 3))
    ),
}


def width(problem: Any) -> int:
    return problem.inputs if isinstance(problem, pear.Model) else problem.n


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_kind_of_problem_comes_back(kind: str, tmp_path: Path) -> None:
    problem = PROBLEMS[kind]()
    loss = "mse" if kind == "sparse" else "pear"
    model = pear.DecisionRegressor(problem, loss=loss, **SHORT).fit(X, values(width(problem)))
    model.save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear")
    assert np.array_equal(again.predict(X), model.predict(X))
    own = {"problem": again.problem} if "per sample" in kind else {}
    other = {"problem": problem} if own else {}
    assert np.array_equal(again.decide(X, **own), model.decide(X, **other))
    assert repr(again.problem) == repr(problem)
    assert again.smoothing_ == model.smoothing_
    if isinstance(problem, pear.Model):
        for name in ("variables", "rows", "constraints", "constraint_signs", "offset", "report", "names"):
            assert getattr(again.problem, name) == getattr(problem, name)
        assert torch.equal(again.problem.known, problem.known)
        assert {n: at.tolist() for n, at in again.problem.layout.items()} == {
            n: at.tolist() for n, at in problem.layout.items()
        }


@pytest.mark.parametrize(
    "settings", [{"model": "mlp", "hidden_layer_sizes": (7, 3)}, {"loss": "mse"}, {"smoothing": "auto*2"}]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parameters_and_names_come_back(settings: Any, dtype: Any, tmp_path: Path) -> None:
    problem, costs = PROBLEMS["simplex"](), pd.DataFrame(values(4), columns=["n", "e", "s", "w"]).astype(dtype)
    model = pear.DecisionRegressor(problem, learning_rate=np.float64(0.02), **settings, **SHORT).fit(
        TABLE.astype(dtype), costs
    )
    model.save(str(tmp_path / "a.pear"))
    again = pear.DecisionRegressor.load(str(tmp_path / "a.pear"))
    pd.testing.assert_frame_equal(again.predict(TABLE), model.predict(TABLE))
    pd.testing.assert_frame_equal(again.decide(TABLE), model.decide(TABLE))
    assert {**again.get_params(), "problem": None} == {**model.get_params(), "problem": None}
    assert list(again.feature_names_in_) == list(TABLE.columns)
    assert (again.n_iter_, again.smoothing_) == (model.n_iter_, model.smoothing_)
    again.partial_fit(TABLE, costs)
    model.partial_fit(TABLE, costs)
    assert np.array_equal(again.predict(TABLE), model.predict(TABLE))


def test_a_module_of_ones_own_is_passed_to_load(tmp_path: Path) -> None:
    def module(hidden: int = 6) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(3, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 4))

    problem, path = PROBLEMS["simplex"](), tmp_path / "a.pear"
    model = pear.DecisionRegressor(problem, module(), **SHORT).fit(X, values(4))
    model.save(path)
    assert np.array_equal(pear.DecisionRegressor.load(path, model=module()).predict(X), model.predict(X))
    with pytest.raises(ProblemError, match="was written with Sequential; pass model=…, a Sequential like it"):
        pear.DecisionRegressor.load(path)
    with pytest.raises(ProblemError, match="do not fit the module"):
        pear.DecisionRegressor.load(path, model=module(5))
    pear.DecisionRegressor(problem, **SHORT).fit(X, values(4)).save(path)
    with pytest.raises(ProblemError, match="pass no model"):
        pear.DecisionRegressor.load(path, model=module())


def test_a_loss_given_as_an_object_stays_behind(tmp_path: Path) -> None:
    problem = PROBLEMS["simplex"]()
    pear.DecisionRegressor(problem, loss=pear.PEARLoss(problem), **SHORT).fit(X, values(4)).save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear")
    assert again.decide(X).shape == (50, 4)
    with pytest.raises(ProblemError, match=r"a model file does not hold; set_params\(loss=…\) first"):
        again.fit(X, values(4))
    with pytest.raises(ProblemError, match=r"a model file does not hold; set_params\(loss=…\) first"):
        again.partial_fit(X, values(4))
    assert again.set_params(loss="pear").partial_fit(X, values(4)).smoothing_ > 0


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a.pear"
    pear.DecisionRegressor(PROBLEMS["simplex"](), **SHORT).fit(X, values(4)).save(path)
    return path


def test_the_file_holds_json_and_arrays_alone(saved: Path, tmp_path: Path) -> None:
    document = json.loads(safetensors.torch.load_file(saved)[safetensors_file.DOCUMENT].numpy().tobytes())
    assert (document["format"], document["version"]) == ("PEAR model file", 4)
    assert not list(tmp_path.glob("*.part"))
    before = saved.read_bytes()
    pear.DecisionRegressor.load(saved).save(saved)
    assert saved.read_bytes() == before


def test_what_is_something_else(saved: Path, tmp_path: Path) -> None:
    load = pear.DecisionRegressor.load
    with pytest.raises(DataError, match="there is no file"):
        load(tmp_path / "none.pear")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path)
    text = tmp_path / "text.pear"
    text.write_text("price,demand\n1,2\n")
    with pytest.raises(DataError, match="is no PEAR model file, or is cut off or damaged"):
        load(text)
    torch.save({"weights": torch.ones(3)}, text)
    with pytest.raises(DataError, match=r"holds a pickle, as torch\.save and earlier versions of PEAR write it"):
        load(text)
    safetensors_file.write_safetensors(text, "PEAR model file", 99, {})
    with pytest.raises(DataError, match="version 99, and a 'PEAR model file' of version 4 was expected"):
        load(text)
    safetensors_file.write_safetensors(text, "PEAR checkpoint", 3, {})
    with pytest.raises(DataError, match="is a 'PEAR checkpoint' of version 3, and a 'PEAR model file'"):
        load(text)


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entropy = pear.Smooth(
        value=lambda z: (z * z).sum(1),
        gradient=lambda z: 2 * z,
        hessian=lambda z: 2 * torch.eye(4).double().expand(len(z), 4, 4),
    )
    smooth = pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0, phi=entropy)
    model = pear.DecisionRegressor(smooth, loss="mse", **SHORT).fit(X, values(4))
    with pytest.raises(ProblemError, match="smooth term, which is made of functions"):
        model.save(tmp_path / "a.pear")
    odd = pd.DataFrame(values(4), columns=pd.date_range("2026-01-01", periods=4))
    model = pear.DecisionRegressor(PROBLEMS["simplex"](), **SHORT).fit(X, odd)
    with pytest.raises(ProblemError, match="columns of C must be named by strings or numbers"):
        model.save(tmp_path / "a.pear")
    assert not list(tmp_path.iterdir())


def test_a_break_while_writing_leaves_the_last_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, model = saved.read_bytes(), pear.DecisionRegressor.load(saved)

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(safetensors_file.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["a.pear"]
