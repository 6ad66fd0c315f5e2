"""The page and the tables that set our runs beside the paper's numbers, made from the database of runs alone."""

from pear.report.compare import DEFINITION, Verdict, verdict
from pear.report.runs import Runs, read
from pear.report.write import Written, write_report

__all__ = ["DEFINITION", "Runs", "Verdict", "Written", "read", "verdict", "write_report"]
