"""The paper's experiments: a catalogue, protocols, and a database in which every run is a record, done once."""

from pear.experiments.catalogue import COMPARISONS, EXPERIMENTS
from pear.experiments.database import FILE_NAME, SCHEMA_VERSION, Database, export, merge
from pear.experiments.errors import DatabaseError, ExperimentError, RunError
from pear.experiments.estimate import Estimate
from pear.experiments.execute import attempt, execute
from pear.experiments.plan import expand
from pear.experiments.pool import Event
from pear.experiments.record import Record
from pear.experiments.runner import check_data, open_folder, run_all, waiting
from pear.experiments.specs import Run, Selection

__all__ = [
    "COMPARISONS",
    "EXPERIMENTS",
    "FILE_NAME",
    "SCHEMA_VERSION",
    "Database",
    "DatabaseError",
    "Estimate",
    "Event",
    "ExperimentError",
    "Record",
    "Run",
    "RunError",
    "Selection",
    "attempt",
    "check_data",
    "execute",
    "expand",
    "export",
    "merge",
    "open_folder",
    "run_all",
    "waiting",
]
