"""Conformance suites: sets of named checks that a solver, a loss, an importer, a task or an engine must pass.

They are for those who write one, in a package of their own or here: PEAR's own pass the same checks. ``check_solver``
and its siblings run a whole suite; ``solver_checks`` and its siblings list it, for pytest::

    @pytest.mark.parametrize("check", pear.testing.solver_checks("mine"), ids=str)
    def test_the_solver_conforms(check):
        check()
"""

from pear.testing.checks import Check, ConformanceError
from pear.testing.importer_checks import check_importer, importer_checks
from pear.testing.loss_checks import check_loss, loss_checks
from pear.testing.model_zoo import ModelCase
from pear.testing.solver_checks import check_solver, solver_checks
from pear.testing.task_and_engine_checks import check_engine, check_task, engine_checks, task_checks

__all__ = [
    "Check",
    "ConformanceError",
    "ModelCase",
    "check_engine",
    "check_importer",
    "check_loss",
    "check_solver",
    "check_task",
    "engine_checks",
    "importer_checks",
    "loss_checks",
    "solver_checks",
    "task_checks",
]
