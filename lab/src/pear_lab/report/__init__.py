"""The report: our runs compared with the paper's numbers, as a page and as tables, made from the database alone."""

from pear_lab.report.published_numbers import DEFINITION, CellVerdict, verdict
from pear_lab.report.report_files import ReportFiles, write_report
from pear_lab.report.table_cells import StoredRuns, read

__all__ = ["DEFINITION", "CellVerdict", "ReportFiles", "StoredRuns", "read", "verdict", "write_report"]
