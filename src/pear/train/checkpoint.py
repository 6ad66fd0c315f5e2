"""``Checkpoint``: saves and resumes a training run; and identities, which tell a run from another one."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pear.errors import DataError, TrainingError
from pear.problem import Model, Problem
from pear.problem.matrix import is_sparse
from pear.problem.problem import FIELDS
from pear.train import file_format
from pear.train.early_stopping import EarlyStopping
from pear.train.history import History
from pear.train.samples import SampleSource
from pear.train.samples.features import input_tensors

KIND, VERSION = "PEAR checkpoint", 1
_NOT_COMPARED = {"solver", "on_failure", "problem"}  # a resumed run may change the first two; a problem has a digest


@dataclass
class Checkpoint:
    """Saves and restores everything that the next epoch depends on.

    Attributes:
        path: the path of the file; None saves nothing.
        model: the model, whose weights are saved.
        optimizer: the optimizer, whose state is saved.
        loss: the loss, whose ``state_dict`` is saved with the warm starts (``sample_state``) of its modules, because a
            solve from another start may round differently.
        generator: the generator of the order of samples, whose state is saved.
        stopping: the rule of early stopping, whose state is saved.
        schedule: the schedule of the learning rate, whose state is saved; or None.
        data: the result of ``data_identity``; a run on other samples is not resumed.
        identity: a description of model, optimizer, loss and data; a file with another identity is refused.
    """

    path: Path | None
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Any
    generator: torch.Generator
    stopping: EarlyStopping
    schedule: ReduceLROnPlateau | None
    data: dict[str, Any]
    identity: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.identity = {}
        if self.path is not None:
            model, loss = model_identity(self.model), loss_identity(self.loss)
            optimizer = type(self.optimizer).__qualname__
            self.identity = {"model": model, "optimizer": optimizer, "loss": loss, "data": self.data}

    def save(self, history: History, best_weights: Mapping[str, Any] | None) -> None:
        """Write the states, the history and the best weights so far to the file.

        Raises:
            TrainingError: the file cannot be written; an earlier file is unchanged.
        """
        if self.path is None:
            return
        content = {"identity": self.identity, "states": self._all_states(), "history": history.as_dict()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file_format.write(self.path, KIND, VERSION, {**content, "best_weights": best_weights})
        except OSError as error:
            raise TrainingError(
                f"the checkpoint {self.path} cannot be written: {error.strerror or error}. The last one "
                "is as it was, and the model has its best weights; make room or give another path, and run again"
            ) from error

    def load(self) -> tuple[History, dict[str, Any] | None] | None:
        """Restore all states; returns the history and the best weights, or None where there is no file.

        Raises:
            TrainingError: the file is damaged or altered, or belongs to another model, optimizer, loss or data. The
                file and all states are then unchanged.
        """
        if self.path is None or not self.path.exists():
            return None
        before = copy.deepcopy(self._all_states())
        try:
            said = file_format.read(self.path, KIND, VERSION, "delete it, or give another path", self._check_identity)
        except DataError as error:
            raise TrainingError(f"the run is not resumed, and nothing has changed: {error}") from error
        try:
            best = said["best_weights"]
            _check_tensors(said["states"]["model"], self.identity["model"])
            if best is not None:
                _check_tensors(best, self.identity["model"])
            history = History.from_dict(said["history"])
            self._restore_all(said["states"])
        except file_format.MALFORMED as error:
            self._restore_all(before)
            raise TrainingError(
                f"the checkpoint {self.path} does not belong to this model, optimizer and loss ({error!r}); nothing "
                "has changed: delete it, or give another path"
            ) from error
        return history, best

    def states(self) -> dict[str, Any]:
        """Return the states that the next epoch depends on and that all ranks share."""
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "loss": dict(self.loss.state_dict()) if isinstance(self.loss, nn.Module) else {},
            "stopping": [self.stopping.reference, self.stopping.waited],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }

    def restore(self, states: Mapping[str, Any]) -> None:
        """Restore the states that ``states`` returned."""
        load_weights(self.model, states["model"])
        self.optimizer.load_state_dict(states["optimizer"])
        if isinstance(self.loss, nn.Module):
            self.loss.load_state_dict(states["loss"])
        self.generator.set_state(states["generator"])
        reference, waited = states["stopping"]
        self.stopping.reference, self.stopping.waited = float(reference), int(waited)
        if self.schedule is not None and states["schedule"] is not None:
            if set(states["schedule"]) != set(self.schedule.state_dict()):  # torch takes any name for an attribute
                raise KeyError(f"schedule {sorted(states['schedule'])}")
            self.schedule.load_state_dict(states["schedule"])

    def _all_states(self) -> dict[str, Any]:
        """Return all states, including the warm starts that this process has stored."""
        warm_starts = {name: module.sample_state() for name, module in self._warm_start_modules()}
        return {**self.states(), "samples": warm_starts}

    def _restore_all(self, states: Mapping[str, Any]) -> None:
        self.restore(states)
        for name, module in self._warm_start_modules():
            module.load_sample_state(states["samples"][name])

    def _warm_start_modules(self) -> list[tuple[str, Any]]:
        """Return the names and modules of the loss that store warm starts."""
        modules = self.loss.named_modules() if isinstance(self.loss, nn.Module) else ()
        return [(name, module) for name, module in modules if hasattr(module, "sample_state")]

    def _check_identity(self, said: dict[str, Any]) -> None:
        """Raise DataError where a file has another identity."""
        for what, own in self.identity.items():
            if (other := said[what]) != own:
                raise DataError(
                    f"the checkpoint {self.path} does not belong to this {what}: {describe_difference(other, own)}; "
                    "delete it, or give another path"
                )


def load_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load weights into a model; torch's version numbers of modules, which a file lacks, are the model's own."""
    own = model.state_dict()
    if set(own) != set(weights):
        raise KeyError(f"weights {sorted(set(own) ^ set(weights))}")
    own.update(weights)
    model.load_state_dict(own)


def model_identity(model: nn.Module) -> dict[str, Any]:
    """Describe a model by its class, and by the dtype and shape of each tensor."""
    return {"class": type(model).__qualname__, "tensors": _describe_tensors(model.state_dict())}


def loss_identity(loss: Any) -> dict[str, Any]:
    """Describe a loss by its class, its settings, and a digest of its problem.

    A setting is a number, text or bool that is both an argument of the class and an attribute of the same name.

    Example:
        >>> import pear
        >>> loss_identity(pear.PEARLoss(pear.Problem(lb=0, ub=1, n=2), smoothing=0.5))["settings"]
        {'smoothing': 0.5, 'injection': 0.05, 'guidance': 10.0, 'reduction': 'mean'}
    """
    if not isinstance(loss, nn.Module):
        return {"class": getattr(loss, "__qualname__", type(loss).__qualname__), "settings": {}, "problem": None}
    names = [name for name in inspect.signature(type(loss)).parameters if name not in _NOT_COMPARED]
    given = {name: getattr(loss, name) for name in names if hasattr(loss, name)}
    plain = {name: value for name, value in given.items() if isinstance(value, (bool, int, float, str))}
    problem = getattr(loss, "given", getattr(loss, "problem", None))
    return {"class": type(loss).__qualname__, "settings": plain, "problem": _problem_identity(problem)}


def data_identity(train: SampleSource, validation: SampleSource) -> dict[str, Any]:
    """Describe samples by their number and the shapes of one sample, without reading them again."""
    look = train.look()
    shapes = [list(part.shape[1:]) for part in input_tensors(look.features)]
    return {"samples": len(train), "features": shapes, "costs": look.costs.shape[-1], "validation": len(validation)}


def describe_difference(other: Any, own: Any, where: str = "") -> str:
    """Describe the first difference between two identities in words.

    Example:
        >>> describe_difference({"class": "Linear", "bias": True}, {"class": "Linear", "bias": False})
        'its bias is True, and False was expected'
    """
    if isinstance(other, dict) and isinstance(own, dict):
        for name in dict.fromkeys((*own, *other)):
            if other.get(name) != own.get(name):
                return describe_difference(other.get(name), own.get(name), f"{where} {name}")
    return f"its{where} is {str(other)[:80]}, and {str(own)[:80]} was expected"


def _describe_tensors(state: Mapping[str, Any]) -> dict[str, str]:
    """Describe each tensor by its dtype and shape, and any other value by its type."""

    def describe(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
        return type(value).__name__

    return {name: describe(value) for name, value in state.items()}


def _check_tensors(state: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Raise ValueError unless the tensors are those of the identity of a model."""
    if (found := _describe_tensors(state)) != model["tensors"]:
        raise ValueError(describe_difference(found, model["tensors"]))


def _problem_identity(problem: Any) -> str | None:
    """Describe a problem by its number of variables and a digest of its data; None where there is no problem."""
    plain = problem.problem if isinstance(problem, Model) else problem
    if not isinstance(plain, Problem):
        return None
    found = hashlib.sha256(plain.sense.encode())
    for name in (*FIELDS, "integer"):
        value = getattr(plain, name)
        parts = (value.csr.data, value.csr.indices, value.csr.indptr) if is_sparse(value) else (value,)
        for part in parts:
            array = part.detach().cpu().numpy() if isinstance(part, Tensor) else part
            found.update(f"{name} {getattr(array, 'shape', None)}".encode())
            if array is not None:
                found.update(array.tobytes())
    return f"{plain.n} variables, {found.hexdigest()[:16]}"
