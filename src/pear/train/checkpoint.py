"""``Checkpoint``: saves and restores one stage of a training; ``CheckpointFile``: the file of all stages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pear.errors import DataError, TrainingError
from pear.train.early_stopping import EarlyStopping
from pear.train.history import History
from pear.train.model_weights import load_model_weights
from pear.train.random_states import RandomStates
from pear.train.run_identity import describe_identity_difference, model_identity, tensor_identities
from pear.train.safetensors_file import MALFORMED, read_safetensors, write_safetensors
from pear.train.training_loss import load_training_loss_warm_starts, save_training_loss_warm_starts

KIND, VERSION = "PEAR checkpoint", 2
_REMEDY = "delete it, or give another path"


@dataclass
class CheckpointFile:
    """The checkpoint file of one call of ``fit``.

    A call of ``fit`` may train in several stages, for example on the squared error and then on the loss. The file holds
    the stage that is under way, and the first checkpoint of the next stage replaces the file.

    Attributes:
        path: the path of the file; None if nothing is saved and nothing is resumed.
        identity: a description of the call, from ``run_identity``. A file with another identity is refused.
        stage: the name of the stage in the file; "" if no file exists.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.pear"
        >>> file = CheckpointFile.open(path, lambda: {"model": "Linear"})
        >>> file.save("race", {"fold": 3, "bias": torch.zeros(2)})
        >>> again = CheckpointFile.open(path, lambda: {"model": "Linear"})
        >>> again.stage, again.content("race")
        ('race', {'fold': 3, 'bias': tensor([0., 0.])})
    """

    path: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    stage: str = ""
    _content: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: Path | None, identity: Callable[[], dict[str, Any]]) -> CheckpointFile:
        """Return the checkpoint file at a path, with its content if the file exists.

        Args:
            path: the path of the file; None if nothing is saved and nothing is resumed.
            identity: a function that returns the identity of the run. It is called only if there is a path, because it
                reads all samples.

        Raises:
            TrainingError: the file is damaged or altered, was written by another version of PEAR, or belongs to another
                run.
        """
        if path is None:
            return cls()
        own = cls(path, identity())
        if not path.exists():
            return own
        try:
            said = read_safetensors(path, KIND, VERSION, _REMEDY, own._check_identity)
        except DataError as error:
            raise TrainingError(f"the run is not resumed, and nothing has changed: {error}") from error
        stage, content = said.get("stage"), said.get("content")
        if not (isinstance(stage, str) and isinstance(content, dict)):
            raise TrainingError(f"the checkpoint {path} was altered; nothing has changed: {_REMEDY}")
        own.stage, own._content = stage, content
        return own

    def content(self, stage: str) -> dict[str, Any]:
        """Return the content of this stage as ``open`` read it.

        The result is {} if the file did not exist or held another stage, and after a ``save``.
        """
        return self._content if stage == self.stage else {}

    def save(self, stage: str, content: Mapping[str, Any]) -> None:
        """Replace the file by one that holds this stage and this content. Without a path, do nothing.

        Raises:
            TrainingError: the file cannot be written. An earlier file is then unchanged.
        """
        if self.path is None:
            return
        said = {"identity": self.identity, "stage": stage, "content": dict(content)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_safetensors(self.path, KIND, VERSION, said)
        except OSError as error:
            raise TrainingError(
                f"the checkpoint {self.path} cannot be written: {error.strerror or error}. The last one "
                "is as it was, and the model has its best weights; make room or give another path, and run again"
            ) from error
        self.stage, self._content = stage, {}

    def _check_identity(self, said: dict[str, Any]) -> None:
        """Raise DataError if the identity in a file, ``said``, is not the identity of this run."""
        for what, own in self.identity.items():
            if (other := said.get(what)) != own:
                said_instead = describe_identity_difference(other, own)
                raise DataError(f"the checkpoint {self.path} does not belong to this {what}: {said_instead}; {_REMEDY}")


@dataclass
class Checkpoint:
    """The objects that the next epoch of a training depends on. Their states are saved to a file and restored.

    The states of torch's global random generators (``RandomStates``) are saved as well.

    Attributes:
        file: the checkpoint file of the run.
        stage: the name of the stage.
        model: the model that is trained.
        optimizer: the optimizer of the model.
        loss: the loss. Its ``state_dict`` is saved together with the warm starts of the samples, because a solver that
            begins at another point may round differently.
        generator: the generator that draws the order of the samples.
        stopping: the rule of early stopping.
        schedule: the schedule of the learning rate, or None.
    """

    file: CheckpointFile
    stage: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Any
    generator: torch.Generator
    stopping: EarlyStopping
    schedule: ReduceLROnPlateau | None

    def __post_init__(self) -> None:
        self._random = RandomStates(self.model)

    def save(self, history: History, best_weights: Mapping[str, Any] | None) -> None:
        """Write the states of these objects, the history and the best weights so far to the file.

        Raises:
            TrainingError: the file cannot be written. An earlier file is then unchanged.
        """
        if self.file.path is not None:
            content = {"states": self._all_states(), "history": history.as_dict(), "best_weights": best_weights}
            self.file.save(self.stage, content)

    def load(self) -> tuple[History, dict[str, Any] | None] | None:
        """Restore the states of these objects from the file.

        Returns:
            A pair: the history, and the best weights or None if there was no check yet. If the file does not hold this
            stage, the result is None instead of a pair.

        Raises:
            TrainingError: the file was altered, or its content does not fit these objects. All states are then
                unchanged.
        """
        said = self.file.content(self.stage)
        if not said:
            return None
        before = copy.deepcopy(self._all_states())
        try:
            best, tensors = said["best_weights"], model_identity(self.model)["tensors"]
            _check_checkpoint_tensors(said["states"]["model"], tensors)
            if best is not None:
                _check_checkpoint_tensors(best, tensors)
            history = History.from_dict(said["history"])
            self._restore_all(said["states"])
        except MALFORMED as error:
            self._restore_all(before)
            raise TrainingError(
                f"the checkpoint {self.file.path} does not belong to this model, optimizer and loss ({error!r}); "
                f"nothing has changed: {_REMEDY}"
            ) from error
        return history, best

    def states(self) -> dict[str, Any]:
        """Return the states of model, optimizer, generator, loss, stopping and schedule, by these names.

        In a data-parallel training, these states are the same in all processes.
        """
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "loss": dict(self.loss.state_dict()) if isinstance(self.loss, nn.Module) else {},
            "stopping": [self.stopping.reference, self.stopping.waited],
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
        }

    def restore(self, states: Mapping[str, Any]) -> None:
        """Set model, optimizer, loss, generator, stopping and schedule to states that ``states`` returned."""
        load_model_weights(self.model, states["model"])
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
        """Return the states from ``states``, the warm starts of the samples, and the random states of this process."""
        return {**self.states(), "samples": save_training_loss_warm_starts(self.loss), "random": self._random.drawn()}

    def _restore_all(self, states: Mapping[str, Any]) -> None:
        """Restore the states that ``_all_states`` returned."""
        self.restore(states)
        load_training_loss_warm_starts(self.loss, states["samples"])
        self._random.restore(states["random"])


def _check_checkpoint_tensors(state: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Raise ValueError unless the tensors in ``state`` have the names, dtypes and shapes in ``expected``."""
    if (found := tensor_identities(state)) != expected:
        raise ValueError(describe_identity_difference(found, expected))
