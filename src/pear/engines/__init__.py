"""Engines run tasks, in this process or on a Ray cluster, with one interface."""

from typing import Any

from pear.engines.engine import (
    Engine,
    Resources,
    SendMessage,
    TaskFailure,
    TaskMessage,
    TaskResult,
    TaskStart,
    TaskUpdate,
)
from pear.engines.engine_table import EngineRow, check_engine_name, start
from pear.errors import EngineError

__all__ = [
    "Engine",
    "EngineError",
    "EngineRow",
    "Resources",
    "SendMessage",
    "TaskFailure",
    "TaskMessage",
    "TaskResult",
    "TaskStart",
    "TaskUpdate",
    "check_engine_name",
    "start",
]


def __getattr__(name: str) -> Any:
    """Raise an error that says what a name of version 0.1 is called now."""
    if name == "TaskLoss":
        raise ImportError("pear.engines.TaskLoss is now pear.engines.TaskFailure")
    raise AttributeError(f"module 'pear.engines' has no attribute {name!r}")
