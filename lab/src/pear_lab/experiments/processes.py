"""``Processes``, an engine that does tasks in worker processes of this machine, and ``start_engine`` for any engine."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import torch

from pear.compile.thread_pools import thread_count
from pear.engines import Engine, EngineError, start
from pear.engines.engine import OnUpdate, Task, throttle_messages
from pear.engines.future_engine import FutureEngine

MAX_STARTS = 5
"""The engine gives up after this many processes in a row that died before they began a task."""


def start_engine(name: str = "local", jobs: int | None = None) -> Engine:
    """Start the engine that does the runs.

    Args:
        name: "local" for this machine, "ray", or "ray://HOST:PORT".
        jobs: the number of tasks at once; by default the number of cores of this machine or of the cluster. With 1,
            local tasks run in this process, otherwise in worker processes.

    Raises:
        EngineError: there is no such engine, or it cannot be reached.
        MissingExtraError: the package of the engine is not installed.
    """
    local_jobs = thread_count() if jobs is None else jobs
    return Processes(local_jobs) if name == "local" and local_jobs > 1 else start(name, jobs)


class Processes(FutureEngine):
    """An engine that does tasks side by side in worker processes. A process is started when there is a task for it.

    Args:
        jobs: the largest number of workers, each of which does one task at a time.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.workers: list[Worker] = []
        self._jobs, self._failed_starts = jobs, 0
        self._waiting: deque[int] = deque()

    @property
    def slots(self) -> int:
        """The largest number of workers."""
        return self._jobs

    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Give waiting tasks to idle workers, then wait up to ``seconds`` for updates, and report them.

        If ``seconds`` is 0, no task is given out.
        """
        while self._waiting and seconds != 0:
            idle = next((worker for worker in self.workers if worker.ticket is None), None)
            if idle is None and len(self.workers) == self._jobs:
                break
            if idle is None:
                idle = Worker()
                self.workers.append(idle)
            ticket = self._waiting.popleft()
            self._futures[idle.submit(ticket, *self.tasks[ticket])] = ticket
        super().wait(on_update, seconds)

    def close(self) -> None:
        """Kill the workers. This loses nothing but time, since a task has no effect before it ends."""
        with without_interrupts():  # a second Ctrl-C must not leave a worker at work
            for worker in self.workers:
                worker.kill()
        for worker in self.workers:
            worker.pool.shutdown()
        self.workers.clear()

    def _hand_over(self, ticket: int) -> None:
        self._waiting.append(ticket)

    def _read_messages(self) -> Iterator[tuple[int, Any]]:
        for worker in self.workers:
            while worker.ticket is not None and worker.messages.poll():
                self._failed_starts = 0
                yield worker.ticket, worker.messages.recv()

    def _collect_result(self, ticket: int, future: Future[Any], on_update: OnUpdate) -> None:
        """Report the result of a finished task, or replace the worker if its process has died."""
        worker = next(worker for worker in self.workers if worker.ticket == ticket)
        try:
            value = future.result()
        except BrokenProcessPool:
            self._replace(worker, ticket, on_update)
        else:
            worker.ticket = None
            self._report_result(ticket, value, on_update)

    def _replace(self, worker: Worker, ticket: int, on_update: OnUpdate) -> None:
        """Remove a worker that has died. Its task is queued again, or given up.

        A task is given up if ``MAX_DEATHS`` workers have died after they began it.

        Raises:
            EngineError: ``MAX_STARTS`` processes in a row have died before they began a task.
        """
        self.workers.remove(worker)
        how = worker.exit_reason()
        if ticket in self._begun:
            self._begin_again(ticket, how, on_update)
            return
        self._waiting.appendleft(ticket)  # the process died before the task began, so that the task is not to blame
        self._failed_starts += 1
        if self._failed_starts >= MAX_STARTS:
            raise EngineError(
                f"{self._failed_starts} worker processes in a row ended before they were ready, the last with {how}; "
                "what has ended is kept. Is there enough memory? Try again with 1 job"
            )


class Worker:
    """A pool of one process. If the process dies, only its own task ends.

    Attributes:
        pool: the executor.
        messages: the end of a pipe at which messages of the worker process are received.
        ticket: the ticket of the worker's task; None if the worker is idle.
    """

    def __init__(self) -> None:
        self.messages, own_end = multiprocessing.Pipe(duplex=False)
        self._context = _Context()
        self.pool = ProcessPoolExecutor(1, self._context, _prepare, (own_end,))
        self.ticket: int | None = None

    def submit(self, ticket: int, function: Task, arguments: tuple[Any, ...]) -> Future[Any]:
        """Begin a task, and return its future. The process is started with the first task."""
        self.ticket = ticket
        try:
            future = self.pool.submit(_work, function, arguments)
        except BrokenProcessPool as error:  # it died while it was idle
            future = Future()
            future.set_exception(error)
        return future

    def kill(self) -> None:
        """End the process at once."""
        if self._context.process is not None:
            self._context.process.kill()

    def exit_reason(self) -> str:
        """Return in words how the process ended."""
        self.pool.shutdown()
        self.messages.close()
        assert self._context.process is not None
        self._context.process.join()
        code = self._context.process.exitcode or 0
        return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


class _Context(SpawnContext):
    """A context that spawns processes which Ctrl-C does not reach. ``process`` is the last process that it made."""

    process: SpawnProcess | None = None

    def Process(self, *args: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Make a process without starting it."""
        self.process = _Process(*args, daemon=True, **options)
        return self.process


class _Process(SpawnProcess):
    def start(self) -> None:
        with without_interrupts():
            super().start()


_messages: Connection | None = None
"""In a worker process: the end of the pipe through which messages are sent to the driver."""


def _prepare(messages: Connection) -> None:
    """Prepare a worker process: it uses one thread, ignores Ctrl-C, and ends when the process that started it ends."""
    global _messages
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _work(function: Task, arguments: tuple[Any, ...]) -> Any:
    """Do a task in a worker process, and return its result."""

    def send(message: Any) -> None:
        assert _messages is not None
        try:
            _messages.send(message)
        except OSError:  # there is no driver any more; raised here, it would be taken for an error of the task
            os._exit(1)

    send(None)
    try:
        return function(throttle_messages(send), *arguments)
    except Exception as error:
        if not _survives_pickling(error):
            raise EngineError(f"{type(error).__name__}: {error}") from None
        raise


def _survives_pickling(error: Exception) -> bool:
    """Return whether an error can be pickled and restored, as is necessary to send it to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except (TypeError, ValueError, AttributeError, pickle.PicklingError):
        return False
    return True


def _exit_with_parent() -> None:
    """Wait until the process that started this one has ended, then end this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in the with block, so that a process started there never gets Ctrl-C, not even while it imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, and that lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
