"""Tasks on this machine: one after the other in this process, or side by side in others."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
from collections import deque
from typing import Any

from pear.compile.threads import count
from pear.engines.base import Begun, Engine, Hear, Resources, Told
from pear.engines.errors import EngineError
from pear.engines.worker import Raised, Said, Taken, Worker

MAX_STARTS = 5
"""How many processes in a row may end before one is ready."""


def start(address: str | None, jobs: int | None, resources: Resources) -> Engine:
    """This process for one job, others for several; ``resources`` are those of the machine."""
    jobs = count() if jobs is None else jobs
    return InProcess() if jobs == 1 else Processes(jobs)


class _ListenerError(BaseException):
    """A listener that cannot be told: the terminal is gone. No ``Exception``, which a task may take for its own."""


class InProcess(Engine):
    """One task after the other in this process, each within ``wait``."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[int] = deque()

    @property
    def slots(self) -> int:
        """One."""
        return 1

    def wait(self, hear: Hear, seconds: float | None = None) -> None:
        """Do the next task, unless there is no time at all."""
        if seconds == 0 or not self._waiting:
            return
        ticket = self._waiting.popleft()
        function, given = self.tasks[ticket]
        hear(Begun(ticket))
        try:
            value = function(_telling(ticket, hear), *given)
        except _ListenerError as error:
            raise error.args[0] from None
        self._end(ticket, value, hear)

    def close(self) -> None:
        """Forget the tasks that have not begun."""
        self._waiting.clear()
        self.tasks.clear()

    def _hand_over(self, ticket: int) -> None:
        self._waiting.append(ticket)


def _telling(ticket: int, hear: Hear) -> Any:
    def tell(message: Any) -> None:
        try:
            hear(Told(ticket, message))
        except OSError as error:
            raise _ListenerError(error) from error

    return tell


class Processes(Engine):
    """Tasks side by side in worker processes, which are started when there is something to do.

    Args:
        jobs: how many workers.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.workers: list[Worker] = []
        self._jobs, self._starts = jobs, 0
        self._waiting: deque[int] = deque()

    @property
    def slots(self) -> int:
        """As many as there are workers at most."""
        return self._jobs

    def wait(self, hear: Hear, seconds: float | None = None) -> None:
        """Hand out tasks, and hear the workers."""
        if seconds == 0:
            while self._listen(hear, seconds):
                pass
            return
        while len(self.workers) < min(self._jobs, len(self.tasks)):
            self.workers.append(Worker.start())
        for worker in self.workers:
            self._hand_out(worker)
        self._listen(hear, seconds)

    def _listen(self, hear: Hear, seconds: float | None) -> bool:
        """One message of every worker that has something to say; False where none has."""
        by_line: dict[Any, Worker] = {worker.line: worker for worker in self.workers}
        ready = multiprocessing.connection.wait(list(by_line), seconds) if by_line else []
        for line in ready:
            self._hear(by_line[line], hear)
        return bool(ready)

    def close(self) -> None:
        """Let idle workers end, and kill the others: nothing that they do can be left half done."""
        for worker in self.workers:
            if worker.idle:
                with contextlib.suppress(OSError):  # it has ended already
                    worker.line.send(None)
            else:
                worker.process.kill()
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def _hand_over(self, ticket: int) -> None:
        self._waiting.append(ticket)

    def _hand_out(self, worker: Worker) -> None:
        if not worker.idle or not self._waiting:
            return
        try:
            worker.line.send(self.tasks[self._waiting[0]])
        except OSError:  # it has died; the end of its line is heard next
            return
        worker.ticket, worker.taken = self._waiting.popleft(), False

    def _hear(self, worker: Worker, hear: Hear) -> None:
        try:
            message = worker.line.recv()
        except (EOFError, OSError):
            self._replace(worker, hear)
            return
        if message is None:
            worker.ready, self._starts = True, 0
        elif isinstance(message, Raised):
            raise message.error
        elif worker.ticket is not None and isinstance(message, Taken):
            worker.taken, self._starts = True, 0
            hear(Begun(worker.ticket))
        elif worker.ticket is not None and isinstance(message, Said):
            hear(Told(worker.ticket, message.message))
        elif worker.ticket is not None:
            ticket, worker.ticket = worker.ticket, None
            self._end(ticket, message.value, hear)

    def _replace(self, worker: Worker, hear: Hear) -> None:
        """Let go of a worker that has died, and do its task once more; the next ``wait`` starts another."""
        how = worker.end()
        self.workers.remove(worker)
        early = not worker.ready or (worker.ticket is not None and not worker.taken)
        if early:
            self._starts += 1
        if self._starts >= MAX_STARTS:
            raise EngineError(
                f"{self._starts} worker processes in a row ended before they were ready, the last with {how}; what has "
                "ended is kept. Is there enough memory? Try again with 1 job"
            )
        if worker.ticket is not None and early:  # it had died before the task came, which is not to blame
            self._waiting.appendleft(worker.ticket)
        elif worker.ticket is not None:
            self._begin_anew(worker.ticket, how, hear)
