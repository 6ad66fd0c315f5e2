"""The paper's experiments as specifications; a run is a row in a database, and runs that are there are skipped."""

from pear.experiments.data_tasks import check_data
from pear.experiments.database import FILE_NAME, SCHEMA_VERSION, Database, export, read_records
from pear.experiments.errors import DatabaseError, ExperimentError, RunError
from pear.experiments.estimate import Estimate
from pear.experiments.market import EXPERIMENTS as MARKET_EXPERIMENTS
from pear.experiments.performance import perform
from pear.experiments.record import Record
from pear.experiments.runner import Event, open_folder, run_all, waiting
from pear.experiments.specs import EXPERIMENTS, Experiment, Run, Selection, expand

__all__ = [
    "EXPERIMENTS",
    "FILE_NAME",
    "MARKET_EXPERIMENTS",
    "SCHEMA_VERSION",
    "Database",
    "DatabaseError",
    "Estimate",
    "Event",
    "Experiment",
    "ExperimentError",
    "Record",
    "Run",
    "RunError",
    "Selection",
    "check_data",
    "expand",
    "export",
    "open_folder",
    "perform",
    "read_records",
    "run_all",
    "waiting",
]
