"""Import of MPS (fixed and free), QPS and LP files with the reader of HiGHS.

A file is refused where the reader leaves something out or guesses, or accepts an error silently.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.importers.highs_model import highs_arrays, semi_variable
from pear.problem.importers.model_arrays import Names
from pear.problem.importers.packed_files import packed_file_suffix, unpacked_file
from pear.problem.model import Model

SUFFIXES = (".mps", ".qps", ".lp")
_EXPECTED = (
    "an MPS, QPS or LP file with a linear or convex quadratic objective, linear rows, bounds and integers, every entry "
    "written once: no quadratic rows, no SOS, no semi-continuous variables, no indicators"
)
# Messages of the reader about a file that it has read correctly.
_HARMLESS = ("switching to fixed format parser", "values summed to", "repeated variable in constraints")
_TOLD = ("WARNING", "ERROR")
_TWICE = "duplicate"  # an entry of Q appears twice in MPS: both triangles are given, or an entry is a mistake
# Sections of MPS files.
_NUMBERS = {"COLUMNS", "RHS", "RANGES", "BOUNDS", "QUADOBJ", "QMATRIX", "QSECTION"}
_SECTIONS = {*_NUMBERS, "ROWS", "OBJSENSE", "OBJNAME", "ENDATA"}
_OPENED_WITH_MORE = {"NAME", "QSECTION", "OBJSENSE"}  # the same line goes on with a name, or the sense
_NO_NUMBER = {"FR", "MI", "PL", "BV"}  # kinds of bounds that may have none


def from_mps(
    path: str | Path, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    r"""A linear, quadratic or integer program from an MPS (fixed or free), QPS or LP file, also compressed (``.gz``).

    Needs highspy (``pip install 'pear-dfl[highs]'``), whose reader is used. A quadratic objective comes from the
    sections QUADOBJ, QSECTION or QMATRIX, or from ``[ … ]/2`` in an LP file. Names, the sense and the constant of the
    objective are kept. A row with two different limits becomes two rows of G, one with equal limits a row of A.

    Args:
        path: ends in .mps, .qps or .lp, or in one of these and .gz.
        predicted: names of the variables whose costs are predicted, in the order of the predictions; the others keep
            the costs of the file. Names of rows stand for their right-hand sides, as in ``rows``, and pairs (row,
            variable) for coefficients, which follow these. If omitted, all costs are predicted that are not known, and
            those of the file are ``m.known``.
        rows: names of rows with a single limit whose right-hand sides are predicted. Their values follow the predicted
            costs. ``predicted`` may then be empty.
        recourse: the rule for decisions that violate the true rows, needed to train with ``rows``. Either a dictionary
            from names of rows to prices per unit of violation, for an equality also a pair (too little, too much), or a
            ``pear.Penalty`` or ``pear.Projection``. ``m.with_recourse`` can add it later.
        known: names of rows and variables whose numbers are known for every sample, and come with every call: a row's
            right-hand side, a variable's cost, or its value where it is fixed; ``x.lb`` and ``x.ub`` for bounds. The
            name of an array (``demand`` for ``demand[0]``, ``demand[1]``, …) stands for all its entries.

    Returns:
        A ``Model``: ``m.problem``, ``m.known``, ``m.offset``, ``m.decision(z)``. Large sparse problems stay sparse, as
        ``Problem`` says.

    Raises:
        DataError: the file is missing, empty or broken, or holds what cannot be taken.
        ProblemError: its bounds cross, or its objective is not convex (of a sparse problem the first solve says so,
            by the status ``NOT_CONVEX``); a name in ``predicted`` is wrong or there twice.
        MissingExtraError: highspy is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pear
        >>> path = Path(tempfile.mkdtemp(), "plan.lp")
        >>> _ = path.write_text("max\n profit: 3 x + 2 y\nst\n hours: x + y <= 4\nbounds\n x <= 3\nend\n")
        >>> m = pear.from_mps(path)
        >>> m.problem
        Problem(max, n=2, 1 inequality, bounds)
        >>> float(m.decision(pear.solve(m.problem, m.known).x)["x"])
        3.0
    """
    path = Path(path)
    return highs_arrays(str(path), read_mps_file(path)).model(predicted, limits=rows, recourse=recourse, known=known)


def read_mps_file(path: Path) -> Any:
    """Read a file as a ``highspy.HighsModel``, and raise where the reader left something out or guessed."""
    highspy = import_optional("highspy", "highs", f"{path}: reading MPS, QPS and LP files")
    is_lp = packed_file_suffix(path) == ".lp"
    with unpacked_file(path, SUFFIXES, ".lp" if is_lp else ".mps") as file, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        highs = highspy.Highs()
        options: dict[str, bool | str | float] = {
            "log_to_console": False,
            "log_file": str(log),
            "small_matrix_value": 1e-12,  # the least that it takes; below, it leaves entries out and says so
            "large_matrix_value": 1e300,
            "infinite_cost": 1e300,
        }
        for name, value in options.items():
            highs.setOptionValue(name, value)
        status = highs.readModel(str(file))
        highs.setOptionValue("log_file", "")
        told = log.read_text("utf-8", "replace") if log.exists() else ""
        told_by = _TOLD if is_lp else (*_TOLD, _TWICE)
        complaints = [line for line in told.splitlines() if any(word in line for word in told_by)]
        complaints = [line for line in complaints if not any(text in line for text in _HARMLESS)]
        model = highs.getModel()
        if status == highspy.HighsStatus.kError or (complaints and not _only_crossed_bounds(complaints)):
            _refuse_file(path, "; ".join(" ".join(line.replace(str(file), path.name).split()) for line in complaints))
        if not is_lp:
            _check_mps_text(path, file, model.lp_.col_names_, spaces="switching to fixed" in told)
    if not model.lp_.num_col_:
        _refuse_file(path, "no variables were found")
    if semi := semi_variable(model.lp_):
        _refuse_file(path, f"variable {semi}")
    return model


def _only_crossed_bounds(complaints: list[str]) -> bool:
    """Whether HiGHS complains of nothing in the file but crossed bounds, which ``Problem`` refuses in its own words."""
    return all("inconsistent bounds" in line for line in complaints)


def _refuse_file(path: Path, reason: str) -> None:
    """Raise the error about a file that cannot be imported."""
    raise DataError(
        f"{path} cannot be taken: {reason or 'the reader of HiGHS gives no reason'}; expected {_EXPECTED}. Correct the "
        "file, or write the problem as pear.Problem"
    )


def _check_mps_text(path: Path, file: Path, names: Iterable[str], spaces: bool) -> None:
    """Check for errors that HiGHS accepts silently: a word in place of a number, or a bound of an unknown variable.

    Args:
        path: the path of the file that the user gave, for the message.
        file: the path of the unpacked text.
        names: the names of the variables that the reader found.
        spaces: True where names contain spaces, so that fields cannot be separated at spaces.

    Raises:
        DataError: names the line and the error.
    """
    columns = set()
    for number, section, words in _data_lines(file):
        if section == "COLUMNS":
            columns.add(words[0])
        for word in _number_words(section, words, spaces):
            if not _is_number(word):
                raise DataError(
                    f"{path}, line {number}: '{word}' stands where section {section} needs a number; correct the file"
                )
    unknown = [] if spaces else [name for name in names if name not in columns]
    if unknown:
        raise DataError(
            f"{path}: the variable {unknown[0]} has a bound or a quadratic term, but is not in section COLUMNS; "
            "correct its name, or add it there"
        )


def _data_lines(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    """The line number, section and words of every line of data."""
    section = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or line.startswith("*"):
                continue
            if _opens_section(words, indented=line[0].isspace()):
                section = words[0].upper()
            elif section in _NUMBERS and "'MARKER'" not in words:
                yield number, section, words


def _opens_section(words: list[str], indented: bool) -> bool:
    """Whether a line opens a section. In free format ``RHS`` alone does, and ``RHS R1 4`` is a line of data."""
    word = words[0].upper()
    return not indented and (word in _OPENED_WITH_MORE or (word in _SECTIONS and len(words) == 1))


def _number_words(section: str, words: list[str], spaces: bool) -> list[str]:
    """The words of a line that must be numbers."""
    if section == "BOUNDS" and words[0].upper() in _NO_NUMBER:
        return []
    if spaces or len(words) < 4 or section == "BOUNDS":
        return words[-1:]
    return [words[-1], words[-3]]


def _is_number(word: str) -> bool:
    try:
        return float(word.upper().replace("D", "E")) is not None and "nan" not in word.lower()
    except ValueError:
        return False
