"""A process that does runs for a driver: it sends back records, writes no row, and does not outlive the driver."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from pear.experiments.errors import DatabaseError
from pear.experiments.execute import attempt
from pear.experiments.specs import Run
from pear.train import Progress

_PROGRESS_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


@dataclass
class Worker:
    """A process and the driver's end of the line to it.

    Attributes:
        process: runs ``_work``; line: ours to it.
        run: what it does; ready: whether it has said that it is there.
    """

    process: SpawnProcess
    line: Connection
    run: Run | None = None
    ready: bool = False

    @classmethod
    def start(cls, folder: Path) -> Worker:
        """A new process, not ready yet; trained weights are below ``folder``."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, folder, os.getpid()), daemon=True)
        with without_interrupts():
            process.start()
        theirs.close()  # so that the line ends when the worker does
        return cls(process, ours)

    def end(self) -> str:
        """Wait for a process that has died, and say how."""
        self.process.join()
        self.line.close()
        code = self.process.exitcode or 0
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def _work(line: Connection, folder: Path, driver: int) -> None:
    """What a worker process does until it is told to stop, or nobody is left to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    _end_with(driver)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            line.send(None)
            while (job := line.recv()) is not None:
                run, trained = job
                line.send(attempt(run, folder, trained, _throttled(line)))
        except DatabaseError as error:
            line.send(error)


def _end_with(driver: int) -> None:
    """End this process as soon as the driver's has ended: by the system on Linux, elsewhere by a thread that waits."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != driver:  # it ended before we asked
            os._exit(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_exit, args=(parent.sentinel,), daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _throttled(line: Connection) -> Callable[[Progress], None]:
    """Tell the driver how a training goes, a few times a second."""
    last = 0.0

    def tell(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last < _PROGRESS_SECONDS:
            return
        last = time.monotonic()
        try:
            line.send(now)
        except OSError:  # there is no driver any more; raised here, it would be taken for an error of the run
            os._exit(1)

    return tell


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """A process started in here never gets Ctrl-C, not even while it imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, and that lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
