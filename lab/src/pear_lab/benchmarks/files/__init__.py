"""Models from files, ours beside other solvers: status, residuals from the file's own arrays, time.

``instance`` reads arrays, ``solvers`` answers in a ``process`` of its own, ``judge`` and ``certificates`` say what an
answer is worth, ``write`` makes files.
"""

from pear_lab.benchmarks.files.run import LABELS, SETTINGS, FileRow, FilesSettings, failed, run, series, tables

__all__ = ["LABELS", "SETTINGS", "FileRow", "FilesSettings", "failed", "run", "series", "tables"]
