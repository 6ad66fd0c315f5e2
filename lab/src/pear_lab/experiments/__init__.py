"""The paper's experiments: their catalogue, the protocols of training, and a database with one record for each run."""

from pear_lab.experiments.catalogue import COMPARISONS, EXPERIMENTS
from pear_lab.experiments.database import FILE_NAME, SCHEMA_VERSION, Database, export_database, merge_databases
from pear_lab.experiments.execute_run import attempt
from pear_lab.experiments.expand_runs import expand
from pear_lab.experiments.experiment_errors import DatabaseError, ExperimentError, RunError
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.run_spec import RunSpec, Selection
from pear_lab.experiments.runner import Event, check_data_of_runs, open_folder, run_all, unfinished_runs
from pear_lab.experiments.time_estimate import Estimate

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
    "RunError",
    "RunRecord",
    "RunSpec",
    "Selection",
    "attempt",
    "check_data_of_runs",
    "expand",
    "export_database",
    "merge_databases",
    "open_folder",
    "run_all",
    "unfinished_runs",
]
