"""Linear algebra: elimination orders and factors of sparse systems, and Cholesky factors of dense matrices."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
