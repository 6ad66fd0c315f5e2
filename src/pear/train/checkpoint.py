"""A training run on disk, so that it can be resumed."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pear.train.errors import TrainingError


@dataclass(frozen=True)
class Checkpoint:
    """Saves and restores everything that the next epoch depends on.

    Attributes:
        path: the file; it is replaced as a whole, so that a break while writing leaves the last one.
        model, optimizer, generator: whose states are kept.
        loss: its ``state_dict`` is kept where it has one.
    """

    path: Path
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Any
    generator: torch.Generator

    def save(self, **run: Any) -> None:
        """Write the states, and the parts of the run given by name."""
        states = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "loss": self.loss.state_dict() if isinstance(self.loss, nn.Module) else {},
            "run": run,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_name(self.path.name + ".part")
        torch.save(states, half)
        os.replace(half, self.path)

    def load(self) -> dict[str, Any] | None:
        """Restore the states and return the parts of the run; None where nothing has been saved."""
        if not self.path.exists():
            return None
        try:
            # the file is the user's own; it holds the history's classes beside tensors
            states = torch.load(self.path, weights_only=False)
            self.model.load_state_dict(states["model"])
            self.optimizer.load_state_dict(states["optimizer"])
            if isinstance(self.loss, nn.Module):
                self.loss.load_state_dict(states["loss"])
        except (RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            raise TrainingError(
                f"the checkpoint {self.path} does not belong to this model, optimizer and loss ({error}); "
                "delete it, or give another path"
            ) from error
        self.generator.set_state(states["generator"])
        run: dict[str, Any] = states["run"]
        return run
