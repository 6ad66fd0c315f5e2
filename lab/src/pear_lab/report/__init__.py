"""The page and the tables that set our runs beside the paper's numbers, made from the database of runs alone."""

from pear_lab.report.cells import Runs, read
from pear_lab.report.published import DEFINITION, Verdict, verdict
from pear_lab.report.write import Written, write_report

__all__ = ["DEFINITION", "Runs", "Verdict", "Written", "read", "verdict", "write_report"]
