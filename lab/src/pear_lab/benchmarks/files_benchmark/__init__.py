"""Solve models from files with our solvers and others: status, residuals from the file's own arrays, time.

``model_file`` reads arrays, ``file_solvers`` answers in a process of its own (``solver_process``), ``pear_lab.judge``
says what an answer is worth, and ``write_models`` makes files.
"""

from pear_lab.benchmarks.files_benchmark.run_files import (
    LABELS,
    SETTINGS,
    FileRow,
    FilesSettings,
    failed,
    run,
    series,
    tables,
)

__all__ = ["LABELS", "SETTINGS", "FileRow", "FilesSettings", "failed", "run", "series", "tables"]
