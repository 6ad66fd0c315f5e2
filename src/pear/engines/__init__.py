"""Engines do tasks in this process, in other processes or on a cluster, behind one small interface."""

from pear.engines.base import (
    Engine,
    Resources,
    SendMessage,
    TaskLoss,
    TaskMessage,
    TaskResult,
    TaskStart,
    TaskUpdate,
)
from pear.engines.errors import EngineError
from pear.engines.registry import ENGINES, check_name, start

__all__ = [
    "ENGINES",
    "Engine",
    "EngineError",
    "Resources",
    "SendMessage",
    "TaskLoss",
    "TaskMessage",
    "TaskResult",
    "TaskStart",
    "TaskUpdate",
    "check_name",
    "start",
]
