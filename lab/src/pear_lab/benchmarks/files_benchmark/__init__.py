"""Benchmark: models from files, solved by PEAR and by other solvers, with status, accuracy and time.

``file_arrays`` reads the arrays of a file. ``file_solvers`` has the solvers, and ``solver_process`` runs them in a
separate process. ``run_files`` measures all solvers, and ``pear_lab.judge`` rates their answers. ``write_models``
writes files.
"""

from pear_lab.benchmarks.files_benchmark.run_files import FilesBenchmark

__all__ = ["BENCHMARK"]

BENCHMARK = FilesBenchmark
