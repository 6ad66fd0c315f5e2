"""Engines do tasks in this process or on a Ray cluster, behind one small interface."""

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
from pear.engines.engine_table import check_name, start
from pear.errors import EngineError

__all__ = [
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
