"""The message that tells the user that kernels are being compiled."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

logger = logging.getLogger("pear")


class CompilationNotice(event.Listener):
    """A listener that logs a message when the first kernel is compiled in this process.

    Attributes:
        compiled: the names of the functions that were compiled in this process.
        silent: True if no message is to be logged, because one was logged before or the caller wants none.
    """

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.silent = False
        self._watched: set[Any] = set()

    def watch(self, dispatcher: Any) -> None:
        """Record compilations of the function ``dispatcher`` from now on."""
        self._watched.add(dispatcher.py_func)

    def on_start(self, happening: event.Event) -> None:
        """Record the compilation of a watched function, and log the message unless ``silent`` is True."""
        dispatcher = happening.data["dispatcher"]
        if dispatcher.py_func not in self._watched:
            return
        self.compiled.append(dispatcher.py_func.__name__)
        if not self.silent:
            self.silent = True
            logger.warning("%s", compilation_message(dispatcher.stats.cache_path))

    def on_end(self, happening: event.Event) -> None:
        """Do nothing. The base class requires this method."""


def compilation_message(cache_path: str | None) -> str:
    """Return the message for a user who has to wait for a compilation.

    Args:
        cache_path: the folder of the cache; None if no folder can be written to.
    """
    if cache_path is None:
        return (
            "pear compiles its solvers, which takes 10 to 20 s, and will do so again in every process: no directory "
            "for the result can be written to; set the environment variable NUMBA_CACHE_DIR to one that can"
        )
    return (
        f"pear compiles its solvers, once, which takes 10 to 20 s; the result is kept in {cache_path} "
        "(the command 'pear compile' does this ahead)"
    )


notice = CompilationNotice()
event.register("numba:compile", notice)
