"""Benchmark: solve every model in a folder with several solvers, and judge their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pear.errors import DataError, PearError
from pear.problem.importers import IMPORTERS, has_importer
from pear_lab.benchmarks.bench_settings import BenchSettings, setting
from pear_lab.benchmarks.benchmark import Benchmark, Labels
from pear_lab.benchmarks.files_benchmark.file_arrays import ModelFile, read_model_file
from pear_lab.benchmarks.files_benchmark.file_solvers import check_file_solver, is_own_file_solver
from pear_lab.benchmarks.files_benchmark.solver_process import SolverProcess
from pear_lab.benchmarks.files_benchmark.write_models import write_new_models
from pear_lab.benchmarks.hard_models import draw_hard_models
from pear_lab.benchmarks.number_formats import format_error, format_number
from pear_lab.benchmarks.series_plot import Series
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.judge.answer_accuracy import RIGHT, VERDICTS, Accuracy, SolverAnswer, compare_accuracies, rate_accuracy
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.proofs import Proof, prove_indefinite, prove_sparse_infeasible, prove_sparse_unbounded


@dataclass(frozen=True)
class FilesSettings(BenchSettings):
    """Solve every LP, QP and MIP in a folder (MPS, QPS, LP, .mat in OSQP's form), and measure the answers."""

    folder: str = setting("", "The folder with the files; its subfolders are searched, too.", argument=True)
    solvers: tuple[str, ...] = setting(
        ("pear", "highs", "clarabel"), "pear, pear:NAME, highs, scipy, or any that qpsolvers finds here."
    )
    tol: float = setting(1e-8, "The accuracy to which the other solvers solve.", positive=True)
    time_limit: float = setting(60.0, "Seconds for each file and solver.", positive=True, quick=5.0)
    generate: bool = setting(False, "Write a dozen hard LPs and QPs into the folder first; with --quick, small ones.")
    quick: bool = False


@dataclass(frozen=True)
class FileRow:
    """The answer of one solver to one file, and the verdict of the judge.

    Attributes:
        file: the path of the file below the folder.
        kind: "lp", "qp", "milp" or "miqp"; empty if the file could not be read.
        n: the number of variables.
        rows: the number of rows, without bounds.
        nonzeros: the non-zeros of the rows plus those of the curvature.
        solver: the name of the solver.
        status: the status that the solver reports.
        verdict: one of ``answer_accuracy.VERDICTS``.
        primal, dual, gap: the errors of the answer, as in ``answer_accuracy.Accuracy``, from the arrays of the file.
        objective: the recomputed objective as the file states it, with its sign and its constant.
        seconds: the seconds of one solve, without reading the file.
        ratio: the seconds relative to those of the fastest other solver with a right answer. NaN if there is none, or
            if the verdict is neither "right" nor "out of time".
        note: a message of the solver, mostly the reason why the file is not solved.
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


class FilesBenchmark(Benchmark[FilesSettings, FileRow]):
    """The benchmark that solves the models in a folder with several solvers and judges the answers."""

    options = FilesSettings
    labels = Labels("Files", "non-zeros", "seconds")

    def run(self) -> None:
        """Solve every file with every solver, file by file.

        Raises:
            DataError: the folder is missing or has no model; or ``generate`` is set, and the folder has files that are
                not among those to write.
            UnknownSolverError: the name of a solver is unknown.
            MissingExtraError: the package of a solver is not installed.
        """
        settings, callbacks = self.settings, self.callbacks
        folder = Path(settings.folder)
        for name in settings.solvers:
            check_file_solver(name)
        if settings.generate:
            callbacks.say(f"writing models into {folder}")
            written = write_new_models(folder, draw_hard_models(settings.quick))
            callbacks.on_note(f"{len(written)} models written into {folder}; those that were there are kept")
        paths = _find_model_files(folder)
        with SolverProcess() as solvers:
            for k, path in enumerate(paths):
                name = str(path.relative_to(folder))
                callbacks.say(f"{k + 1}/{len(paths)} {name}: reading")
                try:
                    model = read_model_file(path)
                except PearError as refusal:
                    callbacks.on_note(f"{name} is left out: {refusal}")
                    for solver in settings.solvers:
                        self.add_row(_make_file_row(name, None, solver, SolverAnswer("refused", note=str(refusal))))
                    continue
                answers = []
                for solver in settings.solvers:
                    callbacks.say(f"{k + 1}/{len(paths)} {name}: {solver}")
                    answers.append(solvers.ask(path, solver, settings.tol, settings.time_limit))
                for row in _judge_file_answers(name, model, settings, answers):
                    self.add_row(row)
                    if row.note and is_own_file_solver(row.solver):
                        callbacks.on_note(f"{name}, {row.solver}, {row.status}: {row.note}")

    @classmethod
    def tables(cls, rows: list[FileRow]) -> list[TextTable]:
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
        return [answers, measured, _summarise_file_solvers(rows)]

    @classmethod
    def failed(cls, rows: list[FileRow]) -> str:
        """Return a sentence on the wrong answers and crashes of PEAR, or an empty text if there are none."""
        bad = [row for row in rows if is_own_file_solver(row.solver) and row.verdict in ("wrong", "crashed")]
        named = ", ".join(f"{row.file} ({row.solver}: {row.verdict})" for row in bad[:5])
        return f"{len(bad)} answers of pear are wrong or crashed: {named}" if bad else ""

    @classmethod
    def series(cls, rows: list[FileRow]) -> list[Series]:
        """Make a series for each solver: seconds over the number of non-zeros, for the files that it solved right."""
        lines = []
        for solver in dict.fromkeys(row.solver for row in rows):
            mine = [row for row in rows if row.solver == solver and row.verdict == "right"]
            x, y = [float(row.nonzeros) for row in mine], [row.seconds for row in mine]
            lines.append(Series(solver, x, y, ours=is_own_file_solver(solver), joined=False))
        return lines


def _find_model_files(folder: Path) -> list[Path]:
    """Find all model files in a folder and below it.

    Raises:
        DataError: the folder does not exist or has no model.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; expected one with models in it: check the path, or make one with --generate"
        )
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and has_importer(path))
    if not paths:
        known = ", ".join(suffix for row in IMPORTERS for suffix in row.suffixes)
        raise DataError(f"{folder} holds no model; expected files that end in {known}, or in one of these and .gz")
    return paths


def _judge_file_answers(
    name: str, model: ModelFile, settings: FilesSettings, answers: Sequence[SolverAnswer]
) -> list[FileRow]:
    """Judge the answers of all solvers to one file, and make a row for each solver."""
    program = model.program
    accuracies = compare_accuracies(program, answers)
    proofs: dict[str, bool | None] = {}
    for answer in answers:
        if answer.status in ("infeasible", "unbounded") and answer.status not in proofs:
            proofs[answer.status] = _prove_file_claim(answer.status, program, answers, accuracies, settings.time_limit)
    convex = prove_indefinite(program.H) is not Proof.YES
    verdicts = [rate_accuracy(a, r, proofs.get(a.status), convex) for a, r in zip(answers, accuracies, strict=True)]
    rows = []
    for i, (solver, answer) in enumerate(zip(settings.solvers, answers, strict=True)):
        others = [a.seconds for k, a in enumerate(answers) if k != i and verdicts[k] == "right"]
        fastest = min((seconds for seconds in others if seconds > 0), default=math.nan)
        ratio = answer.seconds / fastest if verdicts[i] in ("right", "out of time") else math.nan
        rows.append(_make_file_row(name, model, solver, answer, accuracies[i], verdicts[i], ratio))
    return rows


def _prove_file_claim(
    claim: str, program: JudgedProgram, answers: Sequence[SolverAnswer], found: Sequence[Accuracy], time_limit: float
) -> bool | None:
    """Return whether a program is infeasible or unbounded, as a solver claims.

    Args:
        claim: "infeasible" or "unbounded".
        program: the program.
        answers: the answers of all solvers.
        found: the accuracy of each answer.
        time_limit: seconds for each linear program that searches for a certificate.

    Returns:
        True if a certificate proves the claim, False if the point of a solver refutes it, else None.
    """
    if (prove_sparse_infeasible if claim == "infeasible" else prove_sparse_unbounded)(program, time_limit):
        return True
    measured = [one for answer, one in zip(answers, found, strict=True) if answer.status == "solved"]
    if any(one.primal <= RIGHT and (claim == "infeasible" or one.worst <= RIGHT) for one in measured):
        return False
    return None


def _make_file_row(
    name: str,
    model: ModelFile | None,
    solver: str,
    answer: SolverAnswer,
    found: Accuracy = Accuracy(),  # noqa: B008  frozen
    judged: str = "refused",
    ratio: float = math.nan,
) -> FileRow:
    """Make the row of the results for one solver and one file.

    Args:
        name: the path of the file below the folder.
        model: the model in the file; None if the file could not be read.
        solver: the name of the solver.
        answer: the answer of the solver.
        found: the accuracy of the answer.
        judged: the verdict on the answer.
        ratio: as in ``FileRow``.
    """
    sizes = ("", 0, 0, 0) if model is None else (model.kind, model.program.n, model.rows, model.nonzeros)
    objective = math.nan if model is None else model.sign * found.objective + model.offset
    measured = (found.primal, found.dual, found.gap, objective)
    return FileRow(name, *sizes, solver, answer.status, judged, *measured, answer.seconds, ratio, answer.note)


def _summarise_file_solvers(rows: list[FileRow]) -> TextTable:
    """Make a table with the number of files for each solver and verdict."""
    table = TextTable("Summary: files by verdict", ("solver", *VERDICTS, "largest\nratio"))
    for solver in dict.fromkeys(row.solver for row in rows):
        mine = [row for row in rows if row.solver == solver]
        counts = (str(sum(row.verdict == one for row in mine)) for one in VERDICTS)
        ratios = [row.ratio for row in mine if row.verdict == "right" and not math.isnan(row.ratio)]
        table.rows.append((solver, *counts, format_number(max(ratios, default=math.nan))))
    return table
