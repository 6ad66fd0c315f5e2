"""The conformance suite of file importers: difficult models are imported exactly, and broken files raise errors."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from contextlib import suppress
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
from pear.testing.checks import Body, Check, ConformanceError, check_raises, check_that, run_checks
from pear.testing.model_zoo import CASES, WITHOUT_OPTIMUM, ModelCase, WriteModel

SAME = 1e-8
"""The largest relative difference between two optima that count as equal."""

NAMED = "maximisation with a constant"
"""The name of the model whose sense and variables are checked."""

LEAST_CASES = 3
"""The smallest number of models that a format must be able to hold."""


def importer_checks(importer: str | Importer, write: WriteModel) -> list[Check]:
    """Return the checks of an importer of files.

    Args:
        importer: the name of a plug-in, the ending of the files, or an ``Importer``.
        write: a function ``write(case, path)`` that writes a ``ModelCase`` to a file in the importer's format. If the
            format has names, the variables get the names v0, v1, …. The function returns False if the format cannot
            hold the model.

    Example:
        >>> [str(check) for check in importer_checks(".mps", lambda case, path: False)][:2]
        ['free variables', 'ranges']
    """
    row = _find_importer(importer)
    check_that(bool(row.suffixes), f"the importer of {row.name} reads no files; there is nothing to write for it")
    return _ImporterChecks(row, write).all()


def check_importer(importer: str | Importer, write: WriteModel) -> tuple[str, ...]:
    """Run all checks of an importer of files.

    Args:
        importer: the name of a plug-in, the ending of the files, or an ``Importer``.
        write: a function that writes a ``ModelCase`` to a file; see ``importer_checks``.

    Returns:
        The names of the checks, if all of them passed.

    Raises:
        ConformanceError: some checks failed; the message has a line for each of them.

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


def _find_importer(importer: str | Importer) -> Importer:
    """Return the importer with the given name of a plug-in or file ending. An ``Importer`` is returned as it is."""
    if isinstance(importer, Importer):
        return importer
    for row in IMPORTERS:
        if importer in row.suffixes:
            return row
    found = find_plugin("importer", importer)
    if not isinstance(found, Importer):
        raise ConformanceError(f"there is no importer {importer!r}; name one of a plug-in, an ending, or give its row")
    return found


class _ImporterChecks:
    """The checks of an importer of files.

    Args:
        row: the importer.
        write: a function that writes a model to a file; see ``importer_checks``.
    """

    def __init__(self, row: Importer, write: WriteModel) -> None:
        self.row, self.write = row, write

    def all(self) -> list[Check]:
        """Return all checks."""
        bodies: dict[str, Body] = {name: partial(self.keeps_the_optimum, case) for name, case in CASES.items()}
        for name, case in WITHOUT_OPTIMUM.items():
            bodies[f"{name} stays {name}"] = partial(self.has_no_optimum, case, Status[name.upper()])
        bodies["it reads some models"] = self.reads_some
        bodies["sense and names"] = self.keeps_sense_and_names
        if "predicted" in inspect.signature(self.row.read).parameters:
            bodies["some costs are predicted"] = self.predicts_some_costs
        bodies["a missing file"] = self.refuses_a_missing_file
        bodies["a file of nothing, of noise, and half a file"] = self.refuses_broken_files
        return [Check(f"the importer of {self.row.name}", name, body) for name, body in bodies.items()]

    def _import(self, case: ModelCase, **options: Any) -> Model | None:
        """Write a model to a file and import the file. Return None if the format cannot hold the model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"model{self.row.suffixes[0]}")
            if self.write(case, path) is False:
                return None
            found = self.row.read(path, **options)
        check_that(isinstance(found, Model), f"it returns {type(found).__name__}; expected a pear.Model")
        return found

    def keeps_the_optimum(self, case: ModelCase) -> None:
        """Check that the imported model has the optimum and the number of integers of the model that was written."""
        found = self._import(case)
        if found is None:
            return
        value = float(solve(found.problem, found.known).value) + float(found.offset)
        expected = case.optimum()
        same = abs(value - expected) <= SAME * (1 + abs(expected))
        check_that(same, f"its optimum is {value:.10g}; expected {expected:.10g}")
        integer = found.problem.integer
        count = 0 if integer is None else int(integer.sum())
        check_that(count == len(case.integer), f"{count} variables are integers; expected {len(case.integer)}")

    def has_no_optimum(self, case: ModelCase, status: Status) -> None:
        """Check that a solve of a model without an optimum, after its import, ends with the given status."""
        found = self._import(case)
        if found is None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # samples are meant to fail
            said = Status(int(solve(found.problem, found.known, on_failure="mask").status))
        check_that(said == status, f"a solve says {said.name}; expected {status.name}")

    def reads_some(self) -> None:
        """Check that the format can hold at least three models of the suite."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"model{self.row.suffixes[0]}")
            count = sum(self.write(case, path) is not False for case in CASES.values())
        check_that(
            count >= LEAST_CASES, f"its format holds {count} of {len(CASES)} models; expected at least {LEAST_CASES}"
        )

    def keeps_sense_and_names(self) -> None:
        """Check that the imported model has the right sense, and that its decision and report have all variables."""
        case = CASES[NAMED]
        found = self._import(case)
        if found is None:
            case = CASES["ranges"]
            found = self._import(case)
        if found is None:
            return
        check_that(found.problem.sense == case.sense, f"its sense is {found.problem.sense!r}; expected {case.sense!r}")
        decision = found.decision(solve(found.problem, found.known).x)
        count = sum(int(np.prod(value.shape[1:])) for value in decision.values())
        check_that(count >= case.n, f"the decision has {count} values under {list(decision)}; expected {case.n}")
        check_that(f"{case.n} variables" in str(found), f"its report does not count the variables: {found}")

    def predicts_some_costs(self) -> None:
        """Check that ``predicted=`` names the predicted costs, and that other costs keep the values of the file."""
        case = CASES["ranges"]
        whole = self._import(case)
        if whole is None:
            return
        first, *_, last = whole.variables
        found = self._import(case, predicted=[last, first])
        assert found is not None
        check_that(found.inputs == 2, f"with two predicted costs it takes {found.inputs} values")
        known = torch.as_tensor(whole.known, dtype=torch.float64).reshape(-1)
        values = torch.stack([known[-1], known[0]])[None]
        same = torch.allclose(torch.as_tensor(found.cost(values)).reshape(-1).double(), known, rtol=0.0, atol=SAME)
        check_that(same, f"the costs of the file give the costs {found.cost(values)}; expected {known.tolist()}")
        wrong = partial(self._import, case, predicted=["no such variable"])
        check_raises(PearError, wrong, "a predicted variable that is not there")

    def refuses_a_missing_file(self) -> None:
        """Check that a missing file, and a folder in its place, raise an error of ``pear.errors``."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"missing{self.row.suffixes[0]}")
            check_raises(PearError, lambda: self.row.read(path), "a file that is not there")
            path.mkdir()
            check_raises(PearError, lambda: self.row.read(path), "a folder in place of the file")

    def refuses_broken_files(self) -> None:
        """Check that broken files raise errors of ``pear.errors``. A truncated file may also be a valid model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"model{self.row.suffixes[0]}")
            path.write_bytes(b"")
            check_raises(PearError, lambda: self.row.read(path), "an empty file")
            path.write_bytes(np.random.default_rng(0).bytes(300))
            check_raises(PearError, lambda: self.row.read(path), "a file of random bytes")
            if self.write(CASES["ranges"], path) is False:
                return
            whole = path.read_bytes()
            for share in (0.25, 0.5, 0.75):
                path.write_bytes(whole[: int(share * len(whole))])
                with suppress(PearError):
                    self.row.read(path)
