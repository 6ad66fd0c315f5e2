"""An engine that runs tasks in this process, under another name."""

from pear.engines import EngineRow
from pear.engines.local_engine import start

__all__ = ["ROW", "start"]

ROW = EngineRow("pear_toy.desk_engine")
