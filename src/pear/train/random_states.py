"""What a training depends on besides weights and optimizer: torch's global random numbers, and samples' warm starts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class RandomStates:
    """Torch's global random states, of the CPU and of the GPUs that a model is on.

    They are saved where they have changed since the training began: then something draws from them, as dropout does.

    Args:
        model: the model that is trained.
    """

    def __init__(self, model: nn.Module) -> None:
        self.devices = sorted({str(one.device) for one in model.parameters() if one.is_cuda})
        self.first = self._read()

    def _read(self) -> dict[str, Tensor]:
        return {"cpu": torch.get_rng_state(), **{name: torch.cuda.get_rng_state(name) for name in self.devices}}

    def drawn(self) -> dict[str, Tensor]:
        """The states that have changed since the training began."""
        return {name: state for name, state in self._read().items() if not torch.equal(state, self.first[name])}

    def restore(self, drawn: Mapping[str, Tensor]) -> None:
        """Put back a result of ``drawn``."""
        for name, state in drawn.items():
            if name == "cpu":
                torch.set_rng_state(state)
            elif name in self.first:  # the model may be on another device than before
                torch.cuda.set_rng_state(state, name)
