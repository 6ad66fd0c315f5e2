"""``SolverProcess``: a separate process for solvers, so that they may crash or be killed at their time limit."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pear.errors import PearError
from pear_lab.benchmarks.files_benchmark.file_solvers import prepare_file_solver
from pear_lab.judge.answer_accuracy import SolverAnswer

STARTING = 900.0
"""The time limit in seconds for reading a file. PEAR compiles for some minutes on its first use."""


class SolverProcess:
    """A process that runs solvers one after the other. A crash or a time limit ends the process, and a new one starts.

    Example:
        >>> from pathlib import Path
        >>> with SolverProcess() as solvers:  # doctest: +SKIP
        ...     solvers.ask(Path("plan.mps"), "pear", 1e-8, time_limit=60.0).status
        'solved'
    """

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log", encoding="utf-8", errors="replace")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        self._log.close()

    def ask(self, path: Path, solver: str, tol: float, time_limit: float) -> SolverAnswer:
        """Return the answer of a solver to a file. Without an answer, the status is "time limit" or "crashed".

        Args:
            path: the file.
            solver: the name of the solver.
            tol: the accuracy that solvers other than PEAR aim at.
            time_limit: the seconds of the solve. Reading the file does not count.
        """
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((path, solver, tol))
            ready = self._receive(STARTING)  # the time limit does not include reading the file
            if isinstance(ready, SolverAnswer):
                return ready
            return self._receive(time_limit)
        except TimeoutError:
            self._end()
            return SolverAnswer("time limit", seconds=time_limit, note=f"ended after {time_limit:g} s")
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._end()
            return SolverAnswer("crashed", note=self._last_words())

    def _receive(self, seconds: float) -> Any:
        """Return the next message of the process. Raise ``TimeoutError`` if none comes within ``seconds``."""
        assert self._pipe is not None
        if not self._pipe.poll(seconds):
            raise TimeoutError
        return self._pipe.recv()

    def _start(self) -> None:
        """Start the process, with one thread for every library."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with _one_thread_for_solver_process():
            self._process = context.Process(target=_run_solver_process, args=(theirs, self._log.name), daemon=True)
            self._process.start()
        theirs.close()

    def _end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _last_words(self) -> str:
        """Return the last line that the process wrote, or a sentence that says that it wrote none."""
        text = Path(self._log.name).read_text("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "the process ended without a word"


@contextlib.contextmanager
def _one_thread_for_solver_process() -> Iterator[None]:
    """Make a context in which environment variables limit every library of a new process to one thread."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _run_solver_process(pipe: Connection, log: str) -> None:
    """Answer requests until the pipe is closed.

    Args:
        pipe: delivers requests, each a path, the name of a solver and an accuracy. A request is answered by "ready"
            once the file is read, and then by a ``SolverAnswer``; or at once by a ``SolverAnswer`` if the file cannot
            be read.
        log: the file that the output of the solvers is written to.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process, which ends this one
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(to, stream.fileno())
    while True:
        try:
            path, solver, tol = pipe.recv()
        except EOFError:
            return
        try:
            solve = prepare_file_solver(path, solver, tol)
        except PearError as error:
            pipe.send(SolverAnswer("refused", note=str(error)))
            continue
        pipe.send("ready")
        pipe.send(solve())
