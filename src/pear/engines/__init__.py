"""Where work is done: tasks in this process, in others, or on a cluster, behind one small interface."""

from pear.engines.base import Begun, Ended, Engine, Lost, Resources, Tell, Told, Update
from pear.engines.errors import EngineError
from pear.engines.registry import ENGINES, check_name, start

__all__ = [
    "ENGINES",
    "Begun",
    "Ended",
    "Engine",
    "EngineError",
    "Lost",
    "Resources",
    "Tell",
    "Told",
    "Update",
    "check_name",
    "start",
]
