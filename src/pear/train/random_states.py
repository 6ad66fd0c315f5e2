"""``RandomStates``: the states of torch's global random generators, which a checkpoint saves."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class RandomStates:
    """The states of torch's global random generators for the CPU and for the GPUs that hold a model.

    Only states that change during the training are saved. A state changes if something draws from the generator, as
    dropout does.

    Args:
        model: the model that is trained.
    """

    def __init__(self, model: nn.Module) -> None:
        self.devices = sorted({str(one.device) for one in model.parameters() if one.is_cuda})
        self.first = self._read()

    def _read(self) -> dict[str, Tensor]:
        """Return the present state of each generator, by the name of its device."""
        return {"cpu": torch.get_rng_state(), **{name: torch.cuda.get_rng_state(name) for name in self.devices}}

    def drawn(self) -> dict[str, Tensor]:
        """Return the present states of the generators that have drawn numbers since this object was made."""
        return {name: state for name, state in self._read().items() if not torch.equal(state, self.first[name])}

    def restore(self, drawn: Mapping[str, Tensor]) -> None:
        """Set the generators to the states that ``drawn`` returned."""
        for name, state in drawn.items():
            if name == "cpu":
                torch.set_rng_state(state)
            elif name in self.first:  # the model may be on another device than before
                torch.cuda.set_rng_state(state, name)
