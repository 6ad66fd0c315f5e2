"""``RayEngine``: runs tasks on Ray, on this machine or on all machines of a cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from pear.compile import thread_pools
from pear.engines.engine import Engine, OnUpdate, Resources, Task, throttle_messages
from pear.engines.future_engine import FutureEngine
from pear.engines.process_deadline import process_deadline
from pear.errors import EngineError
from pear.optional_packages import import_optional

_LOOK_SECONDS = 2.0
"""The time between two readings of the cluster's resources, because machines may join and leave."""

_STARTS = 3
"""The number of attempts to start Ray on this machine. On a very busy machine, an attempt fails after 30 seconds."""

_LIMIT_SECONDS = 300
"""If a start takes longer, this process is killed. Ray's own limits are shorter, but some of its waits have none."""

_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray then sends no usage statistics
    # Otherwise Ray starts workers ahead of time, and waits for them without a limit, even if one has died.
    "RAY_prestart_worker_first_driver": "0",
}

_OWN_VARIABLES = "PEAR_"  # environment variables that begin like this are sent to workers


def start(address: str | None, jobs: int | None, resources: Resources) -> Engine:
    """Return an engine that runs tasks on the Ray cluster at ``address``.

    Without an address, the engine uses the connection of this process, or starts Ray on this machine.

    Raises:
        EngineError: the cluster cannot be reached, or an address is given while this process is connected already.
        MissingExtraError: Ray is not installed.
    """
    ray = import_optional("ray", "ray", "the engine 'ray'")
    in_use = ray.is_initialized()
    if in_use and address is not None:
        raise EngineError(
            f"this process is connected to a Ray cluster already, and ray://{address} was asked for; use "
            "engine='ray' for the one in use, or call ray.shutdown() first"
        )
    if not in_use:
        _connect_ray(ray, address, jobs)
    try:
        return RayEngine(ray, jobs, resources, ours=not in_use)
    except BaseException:
        if not in_use:
            ray.shutdown()
        raise


def _connect_ray(ray: Any, address: str | None, jobs: int | None) -> None:
    """Connect to a cluster, or try several times to start Ray on this machine.

    Raises:
        EngineError: connecting or starting fails; the message says why and what to do.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    where = f"ray://{address}" if address else os.environ.get("RAY_ADDRESS")
    for left in reversed(range(1 if where else _STARTS)):
        try:
            _init_ray(ray, where, jobs)
        except Exception as error:  # the errors of Ray have no common type
            ray.shutdown()
            if left:
                continue
            if where:
                raise EngineError(
                    f"cannot connect to Ray at {where}: {error}. Is it started (ray start --head), is the port that of "
                    "Ray clients (10001 unless told otherwise), is RAY_AUTH_TOKEN its token, and is Ray of the same "
                    "version there?"
                ) from error
            raise EngineError(
                f"cannot start Ray on this machine, in {_STARTS} attempts: {error} Is it busy, or short of memory? Try "
                "again, or use the engine local"
            ) from error
        else:
            return


def _init_ray(ray: Any, where: str | None, jobs: int | None) -> None:
    """Connect to Ray at the address ``where``, or, if it is None, start Ray on this machine with ``jobs`` cores.

    Only a call with a ``ray://`` address can be interrupted. All other calls run under a ``process_deadline``.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if where and where.startswith("ray://"):  # this call can be interrupted, and has a short limit
        ray.init(where, **quiet)
        return
    words = (
        f"Ray {'at ' + where if where else 'on this machine'} has not answered for {_LIMIT_SECONDS} seconds and cannot "
        f"be interrupted: process {os.getpid()} is killed. What it has written is there. Do the same again, or use the "
        "engine local."
    )
    with process_deadline(_LIMIT_SECONDS, words):
        if where:
            ray.init(where, **quiet)
        else:
            ray.init("local", num_cpus=jobs, include_dashboard=False, **quiet)


class RayEngine(FutureEngine):
    """An engine that runs tasks on the Ray cluster to which this process is connected.

    Messages of tasks go to a mailbox, a Ray actor on this machine. If the mailbox dies, only messages are lost. This
    class, and not Ray, decides whether a task is begun again, because Ray's retries do not distinguish a lost machine
    from a task that kills its process.

    Args:
        ray: the module ``ray``.
        jobs: the number of tasks at the same time; None for as many as the cluster has room for, which may change.
        resources: what a task needs.
        ours: True if this process was connected to Ray for this engine. ``close`` then disconnects it, which also stops
            a Ray that was started on this machine.
    """

    def __init__(self, ray: Any, jobs: int | None, resources: Resources, ours: bool) -> None:
        super().__init__()
        self._ray, self._jobs, self._resources, self._ours = ray, jobs, resources, ours
        self._remote = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)(_work_on_ray)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        self._mailbox = (
            ray.remote(_ray_mailbox_class()).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        )
        self._letters = self._mailbox.empty.remote()
        self._references: dict[int, Any] = {}
        self._room, self._looked = 1, -float("inf")

    @property
    def slots(self) -> int:
        """The number of tasks at the same time: ``jobs``, or as many as the cluster has room for, but at least 1."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            there = self._ray.cluster_resources()
            needs = (("CPU", self._resources.cpus), ("GPU", self._resources.gpus))
            room = [int(there.get(name, 0) // need) for name, need in needs if need]
            self._room, self._looked = max(1, min(room)), time.monotonic()
        return self._room

    def share(self, value: Any) -> Any:
        """Return a reference to a value in Ray's object store on this machine.

        Every other machine fetches the value once.
        """
        return _SharedValue(self._ray.put(self._pack(value)))

    def close(self) -> None:
        """End the tasks, and disconnect from Ray if this process was connected for this engine."""
        if self._ours:
            self._ray.shutdown()
            return
        for reference in self._references.values():
            self._ray.cancel(reference, force=True)
        self._ray.kill(self._mailbox)
        self._references.clear()

    def _hand_over(self, ticket: int) -> None:
        function, arguments = self.tasks[ticket]
        own = {name: value for name, value in os.environ.items() if name.startswith(_OWN_VARIABLES)}
        packed = [one.reference if isinstance(one, _SharedValue) else self._pack(one) for one in arguments]
        reference = self._remote.remote(self._mailbox, ticket, own, function, *packed)
        self._references[ticket] = reference
        self._futures[reference.future()] = ticket

    def _pack(self, value: Any) -> bytes:
        """Return a pickled value. If Ray pickled the value, tasks would get read-only arrays."""
        return self._ray.cloudpickle.dumps(value)

    def _collect_result(self, ticket: int, future: Future[Any], on_update: OnUpdate) -> None:
        """Report the result of a finished task, or raise its error.

        If the task's process has died, begin the task again.
        """
        del self._references[ticket]
        errors = self._ray.exceptions
        try:
            value = pickle.loads(future.result())
        except errors.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except (errors.NodeDiedError, errors.ObjectLostError) as error:
            self._begin_again(ticket, _shorten_ray_error(error), on_update, to_blame=False)
        except errors.RayError as error:
            self._begin_again(ticket, _shorten_ray_error(error), on_update)
        else:
            self._report_result(ticket, value, on_update)

    def _read_messages(self) -> list[tuple[int, Any]]:
        """Return the messages since the last call, each with its ticket, without waiting."""
        ready, _ = self._ray.wait([self._letters], timeout=0)
        if not ready:
            return []
        letters: list[tuple[int, bytes]] = []
        with contextlib.suppress(self._ray.exceptions.RayError):  # the mailbox has died, and Ray starts it again
            letters = self._ray.get(self._letters)
        self._letters = self._mailbox.empty.remote()
        return [(ticket, pickle.loads(message)) for ticket, message in letters]


class _SharedValue(NamedTuple):
    """A reference to a value in Ray's object store."""

    reference: Any


def _work_on_ray(mailbox: Any, ticket: int, variables: dict[str, str], function: Task, *arguments: bytes) -> bytes:
    """Run a task in a process of Ray, with one thread, and return its result.

    Args:
        mailbox: the actor that receives messages.
        ticket: the ticket of the task.
        variables: environment variables to set before the task begins.
        function: the function of the task.
        arguments: the pickled arguments of the function.

    Returns:
        The pickled value that the function returns.
    """
    from ray import cloudpickle

    os.environ.update(variables)
    torch.set_num_threads(1)

    def send(message: Any) -> None:
        mailbox.put.remote(ticket, pickle.dumps(message))

    send(None)
    with thread_pools.limit_threads(1):
        return cloudpickle.dumps(function(throttle_messages(send), *(pickle.loads(one) for one in arguments)))


def _ray_mailbox_class() -> type:
    """Return the class of the mailbox.

    Ray sends a class made in a function as code, so that no process must import it.
    """

    class Mailbox:
        def __init__(self) -> None:
            self.letters: list[tuple[int, bytes]] = []

        def put(self, ticket: int, message: bytes) -> None:
            self.letters.append((ticket, message))

        def empty(self) -> list[tuple[int, bytes]]:
            letters, self.letters = self.letters, []
            return letters

    return Mailbox


def _shorten_ray_error(error: Exception) -> str:
    """Return the class of a Ray error and the first line of its message."""
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__} ({line[:200]})"
