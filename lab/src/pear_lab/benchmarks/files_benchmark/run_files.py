"""Solve every model in a folder with several solvers, and judge their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pear.errors import DataError, PearError, ProblemError
from pear.problem.importers import IMPORTERS, has_importer
from pear_lab.benchmarks.bench_settings import Callbacks, Labels, Settings, option
from pear_lab.benchmarks.files_benchmark.file_arrays import ModelFile, read_model_file
from pear_lab.benchmarks.files_benchmark.file_solvers import SolverProcess, check_file_solver, is_ours
from pear_lab.benchmarks.files_benchmark.write_models import write_once
from pear_lab.benchmarks.hard_models import hard_instances
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.judge.answer_accuracy import RIGHT, VERDICTS, Accuracy, SolverAnswer, compare_accuracies, rate_accuracy
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.proofs import Proof, prove_indefinite, prove_sparse_infeasible, prove_sparse_unbounded

LABELS = Labels("Files", "non-zeros", "seconds")


@dataclass(frozen=True)
class FilesSettings(Settings):
    """Solve every LP, QP and MIP in a folder (MPS, QPS, LP, .mat in OSQP's form), and measure the answers."""

    folder: str = option("", "The folder with the files; its subfolders are searched, too.", argument=True)
    solvers: tuple[str, ...] = option(
        ("pear", "highs", "clarabel"), "pear, pear:NAME, highs, scipy, or any that qpsolvers finds here."
    )
    tol: float = option(1e-8, "The accuracy to which the other solvers solve.", positive=True)
    time_limit: float = option(60.0, "Seconds for each file and solver.", positive=True, quick=5.0)
    generate: bool = option(False, "Write a dozen hard LPs and QPs into the folder first; with --quick, small ones.")
    quick: bool = False


SETTINGS = FilesSettings


@dataclass(frozen=True)
class FileRow:
    """The answer of one solver to one file, and its verdict.

    Attributes:
        file: path of the file in the folder.
        kind: "lp", "qp", "milp" or "miqp"; empty if the file could not be read.
        n: number of variables.
        rows: number of rows, bounds not counted.
        nonzeros: number of non-zeros of the rows.
        solver: name of the solver.
        status: status that the solver reports.
        verdict: one of ``answer_accuracy.VERDICTS``.
        primal, dual, gap, objective: fields of ``answer_accuracy.Accuracy``, recomputed from the file's arrays.
        seconds: seconds of one solve, without reading the file.
        ratio: seconds relative to the fastest other solver that is right; NaN if there is none or no answer.
        note: reason why the file is not solved.
    """

    file: str
    kind: str
    n: int
    rows: int
    nonzeros: int
    solver: str
    status: str
    verdict: str
    primal: float
    dual: float
    gap: float
    objective: float
    seconds: float
    ratio: float
    note: str


def run(settings: FilesSettings, callbacks: Callbacks) -> None:
    """Solve every file with every solver, file by file.

    Raises:
        DataError: the folder is missing or has no model, or models shall be written to a folder with other files.
        UnknownSolverError: a solver name is unknown.
    """
    folder = Path(settings.folder)
    if not settings.solvers:
        raise ProblemError("--solvers names no solver; expected some, such as pear,highs")
    for name in settings.solvers:
        check_file_solver(name)
    if settings.generate:
        callbacks.say(f"writing models into {folder}")
        written = write_once(folder, hard_instances(settings.quick))
        callbacks.on_note(f"{len(written)} models written into {folder}; those that were there are kept")
    paths = _find_models(folder)
    with SolverProcess() as solvers:
        for k, path in enumerate(paths):
            name = str(path.relative_to(folder))
            callbacks.say(f"{k + 1}/{len(paths)} {name}: reading")
            try:
                model = read_model_file(path)
            except PearError as refusal:
                callbacks.on_note(f"{name} is left out: {refusal}")
                for solver in settings.solvers:
                    callbacks.on_row(_file_row(name, None, solver, SolverAnswer("refused", note=str(refusal))))
                continue
            answers = []
            for solver in settings.solvers:
                callbacks.say(f"{k + 1}/{len(paths)} {name}: {solver}")
                answers.append(solvers.ask(path, solver, settings.tol, settings.time_limit))
            for row in _judge_answers(name, model, settings, answers):
                callbacks.on_row(row)
                if row.note and is_ours(row.solver):
                    callbacks.on_note(f"{name}, {row.solver}, {row.status}: {row.note}")


def _find_models(folder: Path) -> list[Path]:
    """Return the paths of all model files in the folder and below it; raise if there are none."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; expected one with models in it: check the path, or make one with --generate"
        )
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and has_importer(path))
    if not paths:
        known = ", ".join(suffix for row in IMPORTERS for suffix in row.suffixes)
        raise DataError(f"{folder} holds no model; expected files that end in {known}, or in one of these and .gz")
    return paths


def _judge_answers(
    name: str, model: ModelFile, settings: FilesSettings, answers: Sequence[SolverAnswer]
) -> list[FileRow]:
    """Judge what each solver answered for one model, and return one row for each solver."""
    program = model.program
    accuracies = compare_accuracies(program, answers)
    proofs: dict[str, bool | None] = {}
    for answer in answers:
        if answer.status in ("infeasible", "unbounded") and answer.status not in proofs:
            proofs[answer.status] = _is_claim_proven(answer.status, program, answers, accuracies, settings.time_limit)
    convex = prove_indefinite(program.H) is not Proof.YES
    verdicts = [rate_accuracy(a, r, proofs.get(a.status), convex) for a, r in zip(answers, accuracies, strict=True)]
    rows = []
    for i, (solver, answer) in enumerate(zip(settings.solvers, answers, strict=True)):
        others = [a.seconds for k, a in enumerate(answers) if k != i and verdicts[k] == "right"]
        fastest = min((seconds for seconds in others if seconds > 0), default=math.nan)
        ratio = answer.seconds / fastest if verdicts[i] in ("right", "out of time") else math.nan
        rows.append(_file_row(name, model, solver, answer, accuracies[i], verdicts[i], ratio))
    return rows


def _is_claim_proven(
    claim: str, program: JudgedProgram, answers: Sequence[SolverAnswer], found: Sequence[Accuracy], time_limit: float
) -> bool | None:
    """Whether a claim is true. True: a certificate confirms it. False: a solver's point refutes it. None: unknown."""
    if (prove_sparse_infeasible if claim == "infeasible" else prove_sparse_unbounded)(program, time_limit):
        return True
    measured = [one for answer, one in zip(answers, found, strict=True) if answer.status == "solved"]
    if any(one.primal <= RIGHT and (claim == "infeasible" or one.worst <= RIGHT) for one in measured):
        return False
    return None


def _file_row(
    name: str,
    model: ModelFile | None,
    solver: str,
    answer: SolverAnswer,
    found: Accuracy = Accuracy(),  # noqa: B008  frozen
    judged: str = "refused",
    ratio: float = math.nan,
) -> FileRow:
    """Make the row of one solver on one model; ``model`` is None if the file could not be read."""
    sizes = ("", 0, 0, 0) if model is None else (model.kind, model.program.n, model.rows, model.nonzeros)
    objective = math.nan if model is None else model.sign * found.objective + model.offset
    measured = (found.primal, found.dual, found.gap, objective)
    return FileRow(name, *sizes, solver, answer.status, judged, *measured, answer.seconds, ratio, answer.note)


def tables(rows: list[FileRow]) -> list[TextTable]:
    """Make three tables: the answers, their recomputed accuracies, and how often each solver is right."""
    answers = TextTable(
        "Answers; residual: the largest of those below; ratio: to the fastest other that is right",
        ("file", "solver", "status", "verdict", "residual", "s", "ratio"),
        left=4,
    )
    measured = TextTable(
        "Recomputed from the arrays of the file",
        ("file", "kind", "n", "rows", "nonzeros", "solver", "primal", "dual", "gap", "objective"),
        left=1,
    )
    for row in rows:
        errors = (row.primal, row.dual, row.gap)
        largest = max((value for value in errors if not math.isnan(value)), default=math.nan)
        times = (format_error(largest), format_number(row.seconds), format_number(row.ratio))
        answers.rows.append((row.file, row.solver, row.status, row.verdict, *times))
        if not math.isnan(row.objective):
            sizes = (row.kind, f"{row.n:,}", f"{row.rows:,}", f"{row.nonzeros:,}")
            measured.rows.append(
                (row.file, *sizes, row.solver, *map(format_error, errors), format_number(row.objective, 7))
            )
    return [answers, measured, _summary_of_solvers(rows)]


def _summary_of_solvers(rows: list[FileRow]) -> TextTable:
    """Make a table that counts, for each solver, the files by verdict."""
    table = TextTable("Summary: files by verdict", ("solver", *VERDICTS, "largest\nratio"))
    for solver in dict.fromkeys(row.solver for row in rows):
        mine = [row for row in rows if row.solver == solver]
        counts = (str(sum(row.verdict == one for row in mine)) for one in VERDICTS)
        ratios = [row.ratio for row in mine if row.verdict == "right" and not math.isnan(row.ratio)]
        table.rows.append((solver, *counts, format_number(max(ratios, default=math.nan))))
    return table


def failed(rows: list[FileRow]) -> str:
    """Say why the command fails: wrong answers or crashes of our solvers. The text is empty if there are none."""
    bad = [row for row in rows if is_ours(row.solver) and row.verdict in ("wrong", "crashed")]
    named = ", ".join(f"{row.file} ({row.solver}: {row.verdict})" for row in bad[:5])
    return f"{len(bad)} answers of pear are wrong or crashed: {named}" if bad else ""


def series(rows: list[FileRow]) -> list[Series]:
    """Return seconds over the number of non-zeros for each solver; only right answers count."""
    lines = []
    for solver in dict.fromkeys(row.solver for row in rows):
        mine = [row for row in rows if row.solver == solver and row.verdict == "right"]
        x, y = [float(row.nonzeros) for row in mine], [row.seconds for row in mine]
        lines.append(Series(solver, x, y, ours=is_ours(solver), joined=False))
    return lines
