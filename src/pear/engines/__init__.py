"""Engines run tasks, in this process or on a Ray cluster, with one interface."""

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
from pear.engines.engine_table import EngineRow, check_engine_name, start
from pear.errors import EngineError

__all__ = [
    "Engine",
    "EngineError",
    "EngineRow",
    "Resources",
    "SendMessage",
    "TaskLoss",
    "TaskMessage",
    "TaskResult",
    "TaskStart",
    "TaskUpdate",
    "check_engine_name",
    "start",
]
