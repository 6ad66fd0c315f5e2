"""Limits of model files, and the errors for what cannot be written."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import pear
from pear.errors import DataError, OutputError
from pear.train import safetensors_file
from pear.train.estimator import model_file

X, C = np.random.default_rng(0).normal(size=(2, 12, 2))


@pytest.fixture(scope="module")
def fitted() -> Any:
    return pear.DecisionRegressor(pear.Problem(lb=0.0, ub=1.0, n=2), max_epochs=1).fit(X, C)


def rewrite(path: Path, change: Any) -> None:
    """Change the document and the arrays of a file as an attacker would, with a valid checksum."""
    tensors = safetensors.torch.load(path.read_bytes())
    document = json.loads(tensors.pop(safetensors_file.DOCUMENT).numpy().tobytes())
    text = change(document, tensors) or json.dumps(document)
    tensors[safetensors_file.DOCUMENT] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    path.write_bytes(safetensors_file.add_safetensors_checksum(safetensors.torch.save(tensors, {"sha256": "0" * 64})))


def name_twice(document: Any, tensors: Any) -> None:
    document["updates"] = [document["weights"]["0.mean"]] * 1000


def add_entry(document: Any, tensors: Any) -> None:
    document["plugin"] = "rm -r"


def add_field(document: Any, tensors: Any) -> None:
    document["problem"]["more"] = 1


def add_beside_a_tag(document: Any, tensors: Any) -> None:
    document["weights"]["0.mean"]["shape"] = [10**9]


def unknown_tag(document: Any, tensors: Any) -> None:
    document["updates"] = {"$zeros": [10**9]}


def key_twice(document: Any, tensors: Any) -> str:
    return json.dumps(document)[:-1] + ', "flat": true}'


def huge(document: Any, tensors: Any) -> None:
    document["problem"]["n"] = 10**11
    document["problem"]["fields"]["lb"] = 0.0


CHANGES = {
    "KeyError": name_twice,
    "unknown entry 'plugin'": add_entry,
    "unknown entry 'more'": add_field,
    r"unknown entries beside \$tensor": add_beside_a_tag,
    r"unknown tag \$zeros": unknown_tag,
    "a key comes twice": key_twice,
    "100000000000 variables in a file of": huge,
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_file_holds_nothing_that_pear_does_not_write(message: str, fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pear"
    fitted.save(path)
    rewrite(path, lambda document, tensors: None)
    np.testing.assert_array_equal(pear.DecisionRegressor.load(path).predict(X), fitted.predict(X))
    rewrite(path, CHANGES[message])
    with pytest.raises(DataError, match=f"is no PEAR model file that PEAR has written .*{message}"):
        pear.DecisionRegressor.load(path)


def test_the_entries_of_a_file_are_those_that_are_written(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.pear")
    said = safetensors_file.read_safetensors(tmp_path / "model.pear", model_file.KIND, model_file.VERSION, "")
    assert set(said) == model_file._ENTRIES - {"intervals"}  # which calibrated models alone have


def test_a_missing_folder_is_said(fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "none" / "model.pear"
    with pytest.raises(OutputError, match=r"cannot write .*model\.pear; there is no folder .*none: make it"):
        fitted.save(path)
    with pytest.raises(pear.OutputError, match="there is no folder"):
        pear.diagnose(fitted.problem, C, C).save_html(tmp_path / "none" / "page.html")


def test_a_full_disk_is_said_and_leaves_the_file_as_it_was(
    fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pear"
    fitted.save(path)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"the disk of .* is full: make room there, or name another place"):
        fitted.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
