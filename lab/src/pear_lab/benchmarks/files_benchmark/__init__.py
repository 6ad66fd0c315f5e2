"""Solve models from files with our solvers and others: status, residuals from the file's own arrays, time.

``file_arrays`` reads the arrays of a file. ``file_solvers`` solves it in a separate process.
``pear_lab.judge`` rates the answers. ``write_models`` writes files.
"""

from pear_lab.benchmarks.files_benchmark.run_files import LABELS, SETTINGS, failed, run, series, tables

__all__ = ["LABELS", "SETTINGS", "failed", "run", "series", "tables"]
