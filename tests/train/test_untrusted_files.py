"""Untrusted files: truncated, altered and foreign files are rejected with a message, and no code in them runs."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy import sparse
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pear
from pear.errors import DataError, ProblemError, TrainingError
from pear.train import safetensors_file
from pear.train.run_identity import data_identity, loss_identity
from pear.train.samples.sample_source import read_sample_source

pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

PROBLEM = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
ONE = pear.FitConfig(max_epochs=1, start="standardised")
rng = np.random.default_rng(0)
X, C = torch.from_numpy(rng.normal(size=(24, 2))), torch.from_numpy(rng.random((24, 3)))


def network(width: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3)).double()


def resume(path: Path, **changed: Any) -> nn.Module:
    """Train for one epoch with this checkpoint file, or resume from it."""
    said: dict[str, Any] = {
        "model": network(),
        "loss": pear.PEARLoss(PROBLEM),
        "data": (X, C),
        "validation": (X, C),
        "config": ONE,
        "optimizer": lambda model: None,
        **changed,
    }
    model, loss, data = said.pop("model"), said.pop("loss"), said.pop("data")
    pear.fit(model, loss, data, **{**said, "optimizer": said["optimizer"](model)}, checkpoint=path)
    return model


def write_model_file(path: Path) -> None:
    pear.DecisionRegressor(PROBLEM, max_epochs=1).fit(X.numpy(), C.numpy()).save(path)


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "checkpoint": (resume, resume),
    "model file": (write_model_file, pear.DecisionRegressor.load),
}


@pytest.fixture(params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[Path], Any]]:
    """Return a file of each kind, and the function that reads it."""
    write, read = KINDS[request.param]
    write(tmp_path / "file")
    return tmp_path / "file", read


def refused(read: Callable[[Path], Any], path: Path) -> str:
    """Return the error message for a file; check that the file is unchanged."""
    before = path.read_bytes()
    with pytest.raises((DataError, TrainingError)) as error:
        read(path)
    assert path.read_bytes() == before
    return str(error.value)


def test_three_flipped_bits_are_refused_wherever_they_are(file: tuple[Path, Any]) -> None:
    path, read = file
    content, chance = path.read_bytes(), random.Random(0)
    for _ in range(60):
        altered = bytearray(content)
        for bit in chance.sample(range(8 * len(content)), 3):
            altered[bit // 8] ^= 1 << bit % 8
        path.write_bytes(altered)
        assert "altered or damaged" in (said := refused(read, path)) or "cut off or damaged" in said


def test_every_byte_of_the_header_is_watched(tmp_path: Path) -> None:
    """A change of any byte is detected: in lengths, checksum, and names, types and places of the tensors."""
    path = tmp_path / "file"
    safetensors_file.write_safetensors(path, "weights", 1, {"weights": dict(network().state_dict())})
    content = path.read_bytes()
    for at in range(8 + int.from_bytes(content[:8], "little")):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        refused(lambda file: safetensors_file.read_safetensors(file, "weights", 1, "train again"), path)


def test_a_file_that_is_cut_off_is_refused_at_every_length(file: tuple[Path, Any]) -> None:
    path, read = file
    content = path.read_bytes()
    for length in {0, 1, 70, 80, len(content) - 1, *random.Random(1).sample(range(len(content)), 30)}:
        path.write_bytes(content[:length])
        assert "cut off" in refused(read, path)


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("write", ["torch.save", "legacy", "pickle"])
def test_a_payload_does_nothing(file: tuple[Path, Any], write: str, tmp_path: Path) -> None:
    path, read = file
    bad = {"model": network().state_dict(), "run": Payload(tmp_path / "ran")}
    if write == "pickle":
        path.write_bytes(pickle.dumps(bad))
    else:
        torch.save(bad, path, _use_new_zipfile_serialization=write == "torch.save")
    assert "holds a pickle" in (said := refused(read, path))
    assert "may run code" in said
    assert "earlier versions of PEAR" in said
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))  # it would have
    assert (tmp_path / "ran").exists()


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Call ``change`` on the JSON document in a file of PEAR, and write the file again, with a valid checksum."""
    tensors = safetensors.torch.load(path.read_bytes())
    document = json.loads(tensors[safetensors_file.DOCUMENT].numpy().tobytes())
    change(document)
    tensors[safetensors_file.DOCUMENT] = torch.tensor([*json.dumps(document).encode()], dtype=torch.uint8)
    path.write_bytes(safetensors_file.add_safetensors_checksum(safetensors.torch.save(tensors, {"sha256": "0" * 64})))


def with_other_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header entry of every tensor, and give the file a valid checksum."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    for name in header.keys() - {"__metadata__"}:
        change(header[name])
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(safetensors_file.add_safetensors_checksum(len(text).to_bytes(8, "little") + text + data[begin:]))


HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as it was": lambda tensor: None,
    "objects, which are made by unpickling": lambda tensor: tensor.update(dtype="O"),
    "far too many entries": lambda tensor: tensor.update(shape=[10**15]),
    "far beyond the end of the file": lambda tensor: tensor.update(data_offsets=[0, 10**15]),
    "negative sizes": lambda tensor: tensor.update(shape=[-1]),
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_somebody_who_knows_the_format_is_refused(file: tuple[Path, Any], header: str) -> None:
    path, read = file
    with_other_header(path, HEADERS[header])
    if header == "as it was":
        read(path)
    else:
        refused(read, path)


@pytest.mark.parametrize("change", [dict.clear, lambda document: document.popitem()])
def test_a_document_of_somebody_who_knows_the_format_is_refused(file: tuple[Path, Any], change: Any) -> None:
    path, read = file
    resealed(path, change)
    refused(read, path)


def test_a_name_of_no_tensor_is_refused(tmp_path: Path) -> None:
    safetensors_file.write_safetensors(tmp_path / "a", "test", 1, {"weights": torch.ones(2)})
    resealed(tmp_path / "a", lambda document: document.update(weights={"$tensor": "none"}))
    with pytest.raises(DataError, match="no test that PEAR has written"):
        safetensors_file.read_safetensors(tmp_path / "a", "test", 1, "")


def test_a_zip_of_an_earlier_version_is_refused_in_words(file: tuple[Path, Any]) -> None:
    path, read = file
    path.write_bytes(b"PK\3\4" + bytes(1000) + b"pear sha256 " + b"0" * 64)
    assert re.search("is a zip, as development versions .* wrote it; train again", refused(read, path))


@pytest.mark.parametrize("name", ["features", "hidden"])
def test_a_model_file_makes_no_layers_that_it_has_no_weights_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    pear.DecisionRegressor(PROBLEM, "mlp", hidden_layer_sizes=(4,), max_epochs=1).fit(X.numpy(), C.numpy()).save(path)

    def change(document: dict[str, Any]) -> None:
        if name == "features":
            document["features"] = 10**8
        else:
            document["parameters"]["hidden_layer_sizes"] = {"$tuple": [10**8, 10**8]}

    resealed(path, change)
    assert "asks for layers of" in refused(pear.DecisionRegressor.load, path)


def test_every_value_comes_back_as_it_was(tmp_path: Path) -> None:
    tensors = [
        torch.arange(6).reshape(2, 3).to(dtype)
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    ]
    state = {0: {"step": torch.tensor(3.0), "exp_avg": torch.rand(2, 3)}, "$odd": (1, 2.5, None, True, "ä")}
    floats = [0.1, 1e-320, -0.0, float("inf"), float("-inf"), np.float64(1) / 3]
    content = {"tensors": tensors, "state": state, "floats": floats, "empty": torch.zeros(0, 4), "view": tensors[0].T}
    matrix = sparse.csr_array([[0.0, 1.5], [0.0, 0.0]])
    content |= {"matrix": matrix, "array": np.arange(3, dtype=">i4")}
    safetensors_file.write_safetensors(tmp_path / "a", "test", 1, content)
    back = safetensors_file.read_safetensors(tmp_path / "a", "test", 1, "")
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(back["tensors"], tensors, strict=True))
    assert torch.equal(back["state"][0]["exp_avg"], state[0]["exp_avg"])
    assert back["state"]["$odd"] == state["$odd"]
    assert [x.hex() for x in back["floats"]] == [float(x).hex() for x in floats]
    assert back["empty"].shape == (0, 4)
    assert torch.equal(back["view"], tensors[0].T)
    assert (back["matrix"] != matrix).nnz == 0
    assert back["array"].tolist() == [0, 1, 2]
    with pytest.raises(ProblemError, match=r"state\['f'\] is a function"):
        safetensors_file.write_safetensors(tmp_path / "b", "test", 1, {"state": {"f": lambda: None}})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_indices_that_lead_out_of_a_sparse_matrix_are_refused(tmp_path: Path) -> None:
    matrix = sparse.csr_array([[0.0, 1.5], [2.0, 0.0]])
    matrix.indices[0] = 10**6
    safetensors_file.write_safetensors(tmp_path / "a", "test", 1, {"matrix": matrix})
    with pytest.raises(DataError, match="no test that PEAR has written"):
        safetensors_file.read_safetensors(tmp_path / "a", "test", 1, "")


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "class": ({"model": nn.Linear(2, 3).double()}, "this model: its class is Sequential, and Linear was expected"),
    "shape": ({"model": network(4)}, r"this model: its tensors 0.weight is float64 \(3, 2\), and float64 \(4, 2\)"),
    "dtype": ({"model": network().float()}, "this model: .* is float64 .*, and float32"),
    "optimizer": (
        {"optimizer": lambda m: torch.optim.SGD(m.parameters(), 0.1)},
        "this optimizer: its class is Adam of fit, and SGD",
    ),
    "loss": ({"loss": nn.MSELoss()}, "this loss: its class is PEARLoss, and MSELoss was expected"),
    "setting": (
        {"loss": pear.PEARLoss(PROBLEM, guidance=1.0)},
        "this loss: its settings guidance is 10.0, and 1.0 was",
    ),
    "problem": ({"loss": pear.PEARLoss(pear.Problem(lb=0.0, ub=1.0, n=3))}, "this loss: its problem is 3 variables, "),
    "learning rate": (
        {"config": replace(ONE, learning_rate=0.1)},
        "this config: its learning_rate is 0.01, and 0.1 was",
    ),
    "seed": ({"config": replace(ONE, seed=torch.Generator().manual_seed(7))}, "this config: its seed is 0, and 7 was"),
    "NumPy's seed": ({"config": replace(ONE, seed=np.int64(7))}, "this config: its seed is 0, and 7 was expected"),
    "clip_norm": ({"config": replace(ONE, clip_norm=1.0)}, "this config: its clip_norm is None, and 1.0 was expected"),
    "features": ({"data": (X + 1e-9, C)}, "this data: its train fingerprint is "),
    "costs": ({"data": (X, 2 * C)}, "this data: its train fingerprint is "),
    "ids": ({"data": (X, C, [f"day {i}" for i in range(24)])}, "this data: its train fingerprint is "),
    "validation": ({"validation": (X, 2 * C)}, "this data: its validation fingerprint is "),
    "metric": ({"metric": lambda predicted, true: 1.0}, "this metric: its is None, and <lambda> was expected"),
    "order": ({"order": pear.train.in_order}, "this order: its is shuffled, and in_order was expected"),
    "samples": ({"data": (X[:20], C[:20])}, "this data: its train samples is 24, and 20 was expected"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_something_else_is_refused_and_nothing_changes(other: str, tmp_path: Path) -> None:
    path, (changed, message) = tmp_path / "run", OTHERS[other]
    resume(path)
    file, model = path.read_bytes(), changed.get("model", network())
    loss = changed.get("loss", pear.PEARLoss(PROBLEM))
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, str(loss.state_dict())
    with pytest.raises(TrainingError, match=f"does not belong to {message}.*delete it, or give another path"):
        resume(path, **{**changed, "model": model, "loss": loss})
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert str(loss.state_dict()) == state
    assert path.read_bytes() == file


@pytest.mark.parametrize("part", ["optimizer", "generator", "loss", "stopping", "schedule", "samples"])
def test_a_state_that_does_not_fit_leaves_all_others_as_they_were(part: str, tmp_path: Path) -> None:
    path, config = tmp_path / "run", replace(ONE, halve_after=2)
    resume(path, config=config)
    resealed(path, lambda document: document["content"]["states"].update({part: {"step": 1}}))
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TrainingError, match="nothing has changed: delete it, or give another path"):
        resume(path, model=model, config=config)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def rated(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda m: torch.optim.SGD([{"params": m[0].parameters(), "lr": rate}, {"params": m[2].parameters()}], 0.1)


def test_an_optimizer_of_other_settings_is_refused(tmp_path: Path) -> None:
    """The optimizer's own learning rates have to match, and not only that of the config."""
    resume(tmp_path / "run", optimizer=rated(0.2))
    with pytest.raises(TrainingError, match=r"this optimizer: its groups 0 lr is 0.2, and 0.3 was expected; delete it"):
        resume(tmp_path / "run", optimizer=rated(0.3))
    resume(tmp_path / "run", optimizer=rated(0.2))


def test_a_loader_is_told_by_its_costs_in_any_order() -> None:
    def identity(costs: torch.Tensor, seed: int = 0) -> dict[str, Any]:
        order = torch.Generator().manual_seed(seed)
        loader = DataLoader(TensorDataset(X.bfloat16(), costs.bfloat16()), batch_size=5, shuffle=True, generator=order)
        return data_identity(read_sample_source(loader, "train", nn.Linear(2, 3).bfloat16()))

    assert identity(C) == identity(C, seed=1)
    assert identity(C) != identity(C.roll(1, 1))
    assert identity(C) != identity(C.where(C.max() > C, 0.0))


def test_when_a_run_ends_may_change_when_it_goes_on(tmp_path: Path) -> None:
    resume(tmp_path / "run")
    resume(tmp_path / "run", config=replace(ONE, max_epochs=2, patience=3, time_cap=60.0, data_parallel=False))


def test_a_model_whose_cost_map_or_price_is_another_is_another_loss(tmp_path: Path) -> None:
    rows = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    resume(tmp_path / "map", loss=pear.PEARLoss(pear.Model(rows, cost_map=pear.CostMap(known=[0.0, 0.0, 1.0]))))
    with pytest.raises(TrainingError, match=r"does not belong to this loss: its problem is 3 variables, "):
        resume(tmp_path / "map", loss=pear.PEARLoss(pear.Model(rows, cost_map=pear.CostMap(known=[0.0, 0.0, 2.0]))))
    priced = [pear.Model.predicting(rows, b=[0], recourse=pear.Penalty(b=price)) for price in (1.0, 2.0)]
    assert loss_identity(pear.PEARLoss(priced[0])) != loss_identity(pear.PEARLoss(priced[1]))


def test_a_checkpoint_of_an_earlier_version_is_refused_in_words(tmp_path: Path) -> None:
    resume(tmp_path / "run")
    resealed(tmp_path / "run", lambda document: document.update(version=1))
    with pytest.raises(TrainingError, match=r"version 1, as an earlier version of PEAR wrote it.* delete it, or give"):
        resume(tmp_path / "run")


def test_a_solver_and_what_happens_to_failures_may_change_when_a_run_goes_on(tmp_path: Path) -> None:
    resume(tmp_path / "run")
    loss = pear.PEARLoss(PROBLEM, solver="osqp", on_failure="mask")
    resume(tmp_path / "run", loss=loss, config=replace(ONE, max_epochs=2))


COLUMNS = ("has_start", "place", "basis", "inverse", "x")  # of the warm starts of the forecasts, as they are saved


@pytest.mark.parametrize(
    ("column", "value"),
    [("basis", 1 << 20), ("basis", -1), ("place", 2), ("place", 9), ("x", np.nan), ("has_start", 7)],
)
def test_warm_starts_that_lead_compiled_code_astray_are_refused(column: str, value: Any, tmp_path: Path) -> None:
    """Compiled code does not check indices, so that those in a file are checked when it is read."""
    path = tmp_path / "run"
    resume(path, model=nn.Linear(2, 3).double())
    tensors = safetensors.torch.load(path.read_bytes())
    document = json.loads(tensors[safetensors_file.DOCUMENT].numpy().tobytes())
    table = document["content"]["states"]["samples"][""]["decider"]["tables"]["compiled"]
    tensors[table["rows"][COLUMNS.index(column)]["$array"]][:] = value
    path.write_bytes(safetensors_file.add_safetensors_checksum(safetensors.torch.save(tensors, {"sha256": "0" * 64})))
    model, loss = nn.Linear(2, 3).double(), pear.PEARLoss(PROBLEM)
    before = model.weight.detach().clone()
    with pytest.raises(TrainingError, match=r"warm starts .* were altered.*nothing has changed: delete it, or give"):
        resume(path, model=model, loss=loss)
    assert torch.equal(model.weight, before)
    assert len(loss.decider.starts) == 0


@pytest.mark.parametrize("change", ["shape", "columns", "twice"])
def test_warm_starts_of_another_shape_are_refused(change: str, tmp_path: Path) -> None:
    def altered(document: dict[str, Any]) -> None:
        store = document["content"]["states"]["samples"][""]["decider"]
        rows = store["tables"]["compiled"]["rows"]
        if change == "shape":
            rows[1], rows[2] = rows[2], rows[1]
        elif change == "columns":
            rows.pop()
        else:
            store["keys"] = [0] * 24

    resume(tmp_path / "run")
    resealed(tmp_path / "run", altered)
    with pytest.raises(TrainingError, match="nothing has changed: delete it, or give another path"):
        resume(tmp_path / "run")


def test_nothing_in_the_package_loads_a_pickle() -> None:
    loads = re.compile(
        r"(?<!safetensors\.)torch\.load\((?!\w+, weights_only=True)|allow_pickle=True|read_pickle|"
        r"^\s*(import|from) (pickle|dill|joblib(?! import Parallel\b)|marshal|shelve)"  # its processes read no file
    )
    source = Path(pear.__file__).parent
    # what processes of one command say to each other is no file, and never was one
    files = [path for path in source.rglob("*.py") if path.parent.name != "engines"]
    lines = [(path.name, line) for path in files for line in path.read_text("utf-8").splitlines()]
    assert len(lines) > 10_000
    assert [found for found in lines if loads.search(found[1])] == []
