"""An importer of linear programs in a small text format.

A file has a line for each part, in any order: ``max`` or ``min``; ``variable NAME COST LOWER UPPER``, with ``integer``
at the end for integers; ``row LOWER UPPER`` with a coefficient for each variable; ``constant NUMBER``. It ends with
``end``.
"""

from pathlib import Path

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.problem.importers import Importer, ModelArrays, RowLimits


def from_tiny(path, predicted=None):
    """Read a model from a file; ``predicted`` names the variables whose costs are predicted."""
    try:
        lines = [line.split() for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
        if lines[-1:] != [["end"]]:
            raise DataError(f"{path} does not end with the line 'end'; it is no tiny file, or cut off")
        parts = {word: [rest for first, *rest in lines if first == word] for word in ("variable", "row", "constant")}
        names = [name for name, *_ in parts["variable"]]
        costs, lb, ub = np.array([[float(word) for word in rest[:3]] for _, *rest in parts["variable"]]).T
        integer = np.array([rest[-1] == "integer" for rest in parts["variable"]])
        rows = np.array([[float(word) for word in rest] for rest in parts["row"]]).reshape(-1, len(names) + 2)
        offset = sum(float(word) for (word,) in parts["constant"])
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: {error}; expected a tiny file") from error
    limits = RowLimits(
        sparse.csr_array(rows[:, 2:]), rows[:, 0], rows[:, 1], tuple(f"row {i}" for i in range(len(rows)))
    )
    sense = "max" if ["max"] in lines else "min"
    made = ModelArrays(
        str(path), limits, costs, lb, ub, sense=sense, integer=integer, offset=offset, variables=tuple(names)
    )
    return made.model(predicted)


ROW = Importer("tiny files", (".tiny",), from_tiny)
