"""The iterations of the dense interior point as CUDA graphs, by the rules of ``pear.compile.cuda_graphs``."""

from __future__ import annotations

from pear.compile.cuda_graphs import capture, captured_function, copy_all
from pear.solvers.interior_point.newton import Newton, ScaledPrograms


class CapturedNewton(Newton):
    """The iterates of a batch on a GPU, with ``begin`` and ``advance`` captured as CUDA graphs.

    Args:
        data: the first batch. ``load`` copies the numbers of other batches of the same shapes.
    """

    def __init__(self, data: ScaledPrograms) -> None:
        super().__init__(data.clone())
        self._begin = capture(super().begin)
        self._advance = capture(super().advance)

    def load(self, data: ScaledPrograms) -> None:
        """Copy the numbers of another batch of the same shapes."""
        copy_all(self.data.tensors, data.tensors)

    def begin(self) -> None:
        """As ``Newton.begin``."""
        self._begin.replay()

    def advance(self) -> None:
        """As ``Newton.advance``."""
        self._advance.replay()


def iterates_for(data: ScaledPrograms) -> Newton:
    """Return the iterates of a batch, captured as CUDA graphs where that is worth it."""
    (B, n), k = data.c.shape, data.R.shape[1]
    rows = data.H.dim() == 2 and k < n  # whether the systems are solved by rows
    numbers = B * k * (k if data.pairs is not None else n) if rows else B * n * max(k, n)
    found = captured_function("interior point", data.tensors, numbers, lambda: CapturedNewton(data))
    if found is None:
        return Newton(data)
    found.load(data)
    return found
