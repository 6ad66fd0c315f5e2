"""Engines do tasks in this process, in other processes or on a cluster, behind one small interface."""

from pear.engines.engine import (
    Engine,
    Resources,
    SendMessage,
    TaskLoss,
    TaskMessage,
    TaskResult,
    TaskStart,
    TaskUpdate,
)
from pear.engines.engine_table import ENGINES, check_name, start
from pear.engines.errors import EngineError

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
