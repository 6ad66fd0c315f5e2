"""The conformance suite of importers of files: awkward models come back whole, broken files are refused in words."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pear.decisions.solve import solve
from pear.errors import PearError
from pear.optimality.status import Status
from pear.plugins import find_plugin
from pear.problem import Model
from pear.problem.importers import IMPORTERS, Importer
from pear.testing.checks import Check, ConformanceError, require, require_error, run_checks
from pear.testing.model_zoo import CASES, WITHOUT_OPTIMUM, ModelCase, WriteModel

SAME = 1e-8
"""The largest relative difference of two optima that must be equal."""

NAMED = "maximisation with a constant"
LEAST_CASES = 3
"""An importer must read at least this many of the models."""


def importer_checks(importer: str | Importer, write: WriteModel) -> list[Check]:
    """List the checks of an importer of files.

    Args:
        importer: its name, the ending of its files, or its row.
        write: a function that writes a ``ModelCase`` to a path in the importer's format. Its variables are to be called
            v0, v1, … where the format has names. It returns False where the format cannot hold such a model.

    Example:
        >>> [str(check) for check in importer_checks(".mps", lambda case, path: False)][:2]
        ['free variables', 'ranges']
    """
    row = _row(importer)
    require(bool(row.suffixes), f"the importer of {row.name} reads no files; there is nothing to write for it")
    subject = f"the importer of {row.name}"
    return [Check(subject, name, partial(body, row, write)) for name, body in _all_checks(row)]


def check_importer(importer: str | Importer, write: WriteModel) -> tuple[str, ...]:
    """Run all checks of an importer of files.

    Args:
        importer: its name, the ending of its files, or its row.
        write: a function that writes a ``ModelCase`` to a path in the importer's format; see ``importer_checks``.

    Returns:
        The names of the checks, all of which passed.

    Raises:
        ConformanceError: some failed, with a line for each.

    Example:
        >>> import numpy as np
        >>> from scipy.io import savemat
        >>> def write(case, path):
        ...     Q = np.zeros((case.n, case.n)) if case.Q is None else np.array(case.Q)
        ...     rows, limits = np.vstack([case.rows, np.eye(case.n)]), zip((case.low, case.high), case.bounds)
        ...     low, high = (np.concatenate([rows, bounds]).clip(-1e30, 1e30) for rows, bounds in limits)
        ...     arrays = {"P": Q, "q": case.c, "A": rows, "l": low, "u": high, "r": case.offset, "integer": case.marks}
        ...     return case.sense == "min" and savemat(path, arrays)
        >>> len(check_importer(".mat", write)) > 20
        True
    """
    return run_checks(importer_checks(importer, write))


def _row(importer: str | Importer) -> Importer:
    """The row that a user means."""
    if isinstance(importer, Importer):
        return importer
    for row in IMPORTERS:
        if importer in row.suffixes:
            return row
    found = find_plugin("importer", importer)
    if not isinstance(found, Importer):
        raise ConformanceError(f"there is no importer {importer!r}; name one of a plug-in, an ending, or give its row")
    return found


Body = Callable[[Importer, WriteModel], None]


def _all_checks(row: Importer) -> Iterator[tuple[str, Body]]:
    for name, case in CASES.items():
        yield name, partial(_keeps_the_optimum, case=case)
    for name, case in WITHOUT_OPTIMUM.items():
        yield f"{name} stays {name}", partial(_has_no_optimum, case=case, status=Status[name.upper()])
    yield "it reads some models", _reads_some
    yield "sense and names", _keeps_sense_and_names
    if "predicted" in inspect.signature(row.read).parameters:
        yield "some costs are predicted", _predicts_some_costs
    yield "a missing file", _refuses_a_missing_file
    yield "a file of nothing, of noise, and half a file", _refuses_broken_files


def _imported(row: Importer, write: WriteModel, case: ModelCase, **options: Any) -> Model | None:
    """Write a model and read it; None where the format cannot hold it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{row.suffixes[0]}")
        if write(case, path) is False:
            return None
        found = row.read(path, **options)
    require(isinstance(found, Model), f"it returns {type(found).__name__}; expected a pear.Model")
    return found


def _keeps_the_optimum(row: Importer, write: WriteModel, case: ModelCase) -> None:
    """The optimum is that of the arrays, and as many variables are integers, in whatever order."""
    found = _imported(row, write, case)
    if found is None:
        return
    value = float(solve(found.problem, found.known).value) + float(found.offset)
    expected = case.optimum()
    same = abs(value - expected) <= SAME * (1 + abs(expected))
    require(same, f"its optimum is {value:.10g}; expected {expected:.10g}")
    integer = found.problem.integer
    count = 0 if integer is None else int(integer.sum())
    require(count == len(case.integer), f"{count} variables are integers; expected {len(case.integer)}")


def _has_no_optimum(row: Importer, write: WriteModel, case: ModelCase, status: Status) -> None:
    found = _imported(row, write, case)
    if found is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that samples fail is what is wanted
        said = Status(int(solve(found.problem, found.known, on_failure="mask").status))
    require(said == status, f"a solve says {said.name}; expected {status.name}")


def _reads_some(row: Importer, write: WriteModel) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{row.suffixes[0]}")
        count = sum(write(case, path) is not False for case in CASES.values())
    require(count >= LEAST_CASES, f"its format holds {count} of {len(CASES)} models; expected at least {LEAST_CASES}")


def _keeps_sense_and_names(row: Importer, write: WriteModel) -> None:
    """The sense is kept, every variable has a part in the decision, and the report counts them."""
    case = CASES[NAMED]
    found = _imported(row, write, case)
    if found is None:
        case = CASES["ranges"]
        found = _imported(row, write, case)
    if found is None:
        return
    require(found.problem.sense == case.sense, f"its sense is {found.problem.sense!r}; expected {case.sense!r}")
    decision = found.decision(solve(found.problem, found.known).x)
    count = sum(int(np.prod(value.shape[1:])) for value in decision.values())
    require(count >= case.n, f"the decision has {count} values under {list(decision)}; expected {case.n}")
    require(f"{case.n} variables" in str(found), f"its report does not count the variables: {found}")


def _predicts_some_costs(row: Importer, write: WriteModel) -> None:
    """``predicted=`` names the costs that are predicted; the others keep the values of the file."""
    case = CASES["ranges"]
    whole = _imported(row, write, case)
    if whole is None:
        return
    first, *_, last = whole.variables
    found = _imported(row, write, case, predicted=[last, first])
    assert found is not None
    require(found.inputs == 2, f"with two predicted costs it takes {found.inputs} values")
    known = torch.as_tensor(whole.known, dtype=torch.float64).reshape(-1)
    values = torch.stack([known[-1], known[0]])[None]
    same = torch.allclose(torch.as_tensor(found.cost(values)).reshape(-1).double(), known, rtol=0.0, atol=SAME)
    require(same, f"the costs of the file give the costs {found.cost(values)}; expected {known.tolist()}")
    wrong = partial(_imported, row, write, case, predicted=["no such variable"])
    require_error(PearError, wrong, "a predicted variable that is not there")


def _refuses_a_missing_file(row: Importer, write: WriteModel) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"missing{row.suffixes[0]}")
        require_error(PearError, lambda: row.read(path), "a file that is not there")
        path.mkdir()
        require_error(PearError, lambda: row.read(path), "a folder in place of the file")


def _refuses_broken_files(row: Importer, write: WriteModel) -> None:
    """Unreadable files raise an error of ``pear.errors``. A truncated file may also happen to be a valid model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{row.suffixes[0]}")
        path.write_bytes(b"")
        require_error(PearError, lambda: row.read(path), "an empty file")
        path.write_bytes(np.random.default_rng(0).bytes(300))
        require_error(PearError, lambda: row.read(path), "a file of random bytes")
        if write(CASES["ranges"], path) is False:
            return
        whole = path.read_bytes()
        for share in (0.25, 0.5, 0.75):
            path.write_bytes(whole[: int(share * len(whole))])
            try:
                row.read(path)
            except PearError:
                continue
