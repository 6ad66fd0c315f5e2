"""The page and the tables that set our runs beside the paper's numbers, made from the database of runs alone."""

from pear_lab.report.cells import StoredRuns, read
from pear_lab.report.published import DEFINITION, CellVerdict, verdict
from pear_lab.report.report_files import ReportFiles, write_report

__all__ = ["DEFINITION", "CellVerdict", "ReportFiles", "StoredRuns", "read", "verdict", "write_report"]
