"""Import of MPS (fixed and free), QPS and LP files with the reader of HiGHS.

A file is refused if the reader leaves something out, guesses, or accepts an error without a message.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.importers.highs_model import highs_model_arrays, semi_variable_in_highs_model
from pear.problem.importers.model_arrays import Names
from pear.problem.importers.packed_files import packed_file_suffix, unpacked_file
from pear.problem.model import Model

SUFFIXES = (".mps", ".qps", ".lp")
_EXPECTED = (
    "an MPS, QPS or LP file with a linear or convex quadratic objective, linear rows, bounds and integers, every entry "
    "written once: no quadratic rows, no SOS, no semi-continuous variables, no indicators"
)
# Messages of the reader about files that it reads correctly.
_HARMLESS = ("switching to fixed format parser", "values summed to", "repeated variable in constraints")
_TOLD = ("WARNING", "ERROR")
_TWICE = "duplicate"  # an entry of Q appears twice in MPS: the file has both triangles, or a mistake
# Sections of MPS files.
_NUMBERS = {"COLUMNS", "RHS", "RANGES", "BOUNDS", "QUADOBJ", "QMATRIX", "QSECTION"}
_SECTIONS = {*_NUMBERS, "ROWS", "OBJSENSE", "OBJNAME", "ENDATA"}
_OPENED_WITH_MORE = {"NAME", "QSECTION", "OBJSENSE"}  # the same line may continue with a name, or the sense
_NO_NUMBER = {"FR", "MI", "PL", "BV"}  # kinds of bounds that need no number


def from_mps(
    path: str | Path, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    r"""Import a linear, quadratic or integer program from an MPS (fixed or free), QPS or LP file.

    The file may be compressed (``.gz``). It is read by highspy, which ``pip install 'pear-dfl[highs]'`` installs. A
    quadratic objective is read from the sections QUADOBJ, QSECTION or QMATRIX, or from ``[ … ]/2`` in an LP file.
    Names, the sense and the constant of the objective are kept. A row with two different limits becomes two rows of G,
    and a row with equal limits a row of A.

    Args:
        path: the path of a file that ends in .mps, .qps or .lp, or in one of these and .gz.
        predicted: what is predicted. The name of a variable means its cost, the name of a row its right-hand side, and
            a pair (row, variable) the coefficient of the variable in the row. The predicted values are the costs, then
            the right-hand sides, then the coefficients, each in the order of this list. Other numbers keep the values
            of the file. By default all costs that are not in ``known`` are predicted, and ``m.known`` of the returned
            model m has the costs of the file.
        rows: names of further rows whose right-hand sides are predicted. Every row with a predicted number must be an
            equality or have one limit. With ``rows``, ``predicted`` may be an empty list, so that no cost is predicted.
        recourse: the rule for decisions that violate the true rows, needed to train if rows are predicted: a
            dictionary from names of rows to prices per unit of violation, a ``pear.Penalty`` or a ``pear.Projection``.
            An equality may have a pair of prices, (too little, too much). ``Model.with_recourse`` adds one later.
        known: names of the numbers that are known for every sample and passed with every call. The name of a row means
            its right-hand side. The name of a variable means its cost, or its value if the variable is fixed; ``x.lb``
            and ``x.ub`` mean the bounds of x. ``demand`` means all of ``demand[0]``, ``demand[1]``, ….

    Returns:
        A ``Model`` with ``m.problem``, ``m.known``, ``m.offset`` and ``m.decision(z)``. A large problem with few
        non-zeros is sparse, by the rule of ``Problem``.

    Raises:
        DataError: the file is missing, empty or broken, or has parts that cannot be imported.
        ProblemError: bounds cross, the objective is not convex, or a name is wrong or comes twice. If the problem is
            sparse, some objectives that are not convex are found only by a solve, with the status ``NOT_CONVEX``.
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
    return highs_model_arrays(str(path), read_mps_file(path)).model(
        predicted, limits=rows, recourse=recourse, known=known
    )


def read_mps_file(path: Path) -> Any:
    """Read a file as a ``highspy.HighsModel``.

    Raises:
        DataError: the reader fails, leaves something out, guesses, or overlooks an error in the file.
    """
    highspy = import_optional("highspy", "highs", f"{path}: reading MPS, QPS and LP files")
    is_lp = packed_file_suffix(path) == ".lp"
    with unpacked_file(path, SUFFIXES, ".lp" if is_lp else ".mps") as file, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        highs = highspy.Highs()
        options: dict[str, bool | str | float] = {
            "log_to_console": False,
            "log_file": str(log),
            "small_matrix_value": 1e-12,  # the least that HiGHS allows; it warns of smaller entries that it leaves out
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
        if status == highspy.HighsStatus.kError or (complaints and not _has_only_crossed_bounds(complaints)):
            _refuse_mps_file(
                path, "; ".join(" ".join(line.replace(str(file), path.name).split()) for line in complaints)
            )
        if not is_lp:
            _check_mps_text(path, file, model.lp_.col_names_, spaces="switching to fixed" in told)
    if not model.lp_.num_col_:
        _refuse_mps_file(path, "no variables were found")
    if semi := semi_variable_in_highs_model(model.lp_):
        _refuse_mps_file(path, f"variable {semi}")
    return model


def _has_only_crossed_bounds(complaints: list[str]) -> bool:
    """Return True if HiGHS complains only about crossed bounds, which ``Problem`` refuses with a better message."""
    return all("inconsistent bounds" in line for line in complaints)


def _refuse_mps_file(path: Path, reason: str) -> None:
    """Raise DataError about a file that cannot be imported; the message holds ``reason``."""
    raise DataError(
        f"{path} cannot be taken: {reason or 'the reader of HiGHS gives no reason'}; expected {_EXPECTED}. Correct the "
        "file, or write the problem as pear.Problem"
    )


def _check_mps_text(path: Path, file: Path, names: Iterable[str], spaces: bool) -> None:
    """Check for errors that HiGHS accepts silently: a word in place of a number, or a bound of an unknown variable.

    Args:
        path: the path that the user passed, for the message.
        file: the path of the unpacked file.
        names: the names of the variables that the reader found.
        spaces: True if names contain spaces, so that fields cannot be separated at spaces.

    Raises:
        DataError: the file has such an error; the message names the line.
    """
    columns = set()
    for number, section, words in _mps_data_lines(file):
        if section == "COLUMNS":
            columns.add(words[0])
        for word in _mps_number_words(section, words, spaces):
            if not _is_mps_number(word):
                raise DataError(
                    f"{path}, line {number}: '{word}' stands where section {section} needs a number; correct the file"
                )
    unknown = [] if spaces else [name for name in names if name not in columns]
    if unknown:
        raise DataError(
            f"{path}: the variable {unknown[0]} has a bound or a quadratic term, but is not in section COLUMNS; "
            "correct its name, or add it there"
        )


def _mps_data_lines(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line number, the section and the words of every line in the sections that hold numbers."""
    section = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or line.startswith("*"):
                continue
            if _opens_mps_section(words, indented=line[0].isspace()):
                section = words[0].upper()
            elif section in _NUMBERS and "'MARKER'" not in words:
                yield number, section, words


def _opens_mps_section(words: list[str], indented: bool) -> bool:
    """Return True if a line opens a section. ``RHS`` alone opens a section, but ``RHS R1 4`` is data."""
    word = words[0].upper()
    return not indented and (word in _OPENED_WITH_MORE or (word in _SECTIONS and len(words) == 1))


def _mps_number_words(section: str, words: list[str], spaces: bool) -> list[str]:
    """Return the words of a line that must be numbers.

    Args:
        section: the section of the line.
        words: the words of the line.
        spaces: True if names contain spaces, so that only the last word is sure to be a number.
    """
    if section == "BOUNDS" and words[0].upper() in _NO_NUMBER:
        return []
    if spaces or len(words) < 4 or section == "BOUNDS":
        return words[-1:]
    return [words[-1], words[-3]]


def _is_mps_number(word: str) -> bool:
    """Return True if a word is a number, also with D in place of E for the exponent, as in Fortran."""
    try:
        return float(word.upper().replace("D", "E")) is not None and "nan" not in word.lower()
    except ValueError:
        return False
