"""A process that does tasks for a driver: it sends back what they return, and does not outlive the driver."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import torch

from pear.engines.base import throttled
from pear.engines.errors import EngineError

_PR_SET_PDEATHSIG = 1


class Taken(NamedTuple):
    """A worker has the task it was sent: what happens to it from here on may be the task's doing."""


class Said(NamedTuple):
    """What a task says on its way."""

    message: Any


class Returned(NamedTuple):
    """What it returns in the end."""

    value: Any


class Raised(NamedTuple):
    """Or the error that it ends with."""

    error: Exception


@dataclass
class Worker:
    """A process and the driver's end of the line to it.

    Attributes:
        process: runs ``_work``; line: ours to it.
        ticket: of the task it does; taken: whether it has said that it has it.
        ready: whether it has said that it is there.
    """

    process: SpawnProcess
    line: Connection
    ticket: int | None = None
    taken: bool = False
    ready: bool = False

    @classmethod
    def start(cls) -> Worker:
        """A new process, not ready yet."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        with without_interrupts():
            process.start()
        theirs.close()  # so that the line ends when the worker does
        return cls(process, ours)

    @property
    def idle(self) -> bool:
        """Whether it waits for a task."""
        return self.ready and self.ticket is None

    def end(self) -> str:
        """Wait for a process that has died, and say how."""
        self.process.join()
        self.line.close()
        code = self.process.exitcode or 0
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def _work(line: Connection, driver: int) -> None:
    """What a worker process does until it is told to stop, or nobody is left to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    _end_with(driver)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        line.send(None)
        while (task := line.recv()) is not None:
            line.send(Taken())
            line.send(_outcome(line, *task))


def _outcome(line: Connection, function: Any, given: tuple[Any, ...]) -> Returned | Raised:
    def tell(message: Any) -> None:
        try:
            line.send(Said(message))
        except OSError:  # there is no driver any more; raised here, it would be taken for an error of the task
            os._exit(1)

    try:
        return Returned(function(throttled(tell), *given))
    except Exception as error:  # noqa: BLE001 (it is raised again where the task came from)
        return Raised(_portable(error))


def _portable(error: Exception) -> Exception:
    """The error, or its words where it cannot be sent: some take more arguments than they keep."""
    try:
        pickle.loads(pickle.dumps(error))
    except (TypeError, ValueError, AttributeError, pickle.PicklingError):
        return EngineError(f"{type(error).__name__}: {error}")
    return error


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
