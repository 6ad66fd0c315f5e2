"""Factorisations and orderings of sparse systems, and batched Cholesky factors of dense ones."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
