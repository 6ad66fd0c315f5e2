"""Conformance suites: named checks that every solver, loss, importer, task and engine must pass.

The suites are for authors of plug-ins. PEAR's own solvers, losses, importers, tasks and engines pass the same checks.
``check_solver``, ``check_loss`` and so on run a whole suite. ``solver_checks``, ``loss_checks`` and so on list the
checks of a suite, for pytest::

    @pytest.mark.parametrize("check", pear.testing.solver_checks("mine"), ids=str)
    def test_the_solver_conforms(check):
        check()
"""

from pear.testing.checks import Check, ConformanceError
from pear.testing.engine_checks import check_engine, engine_checks
from pear.testing.importer_checks import check_importer, importer_checks
from pear.testing.loss_checks import check_loss, loss_checks
from pear.testing.model_zoo import ModelCase
from pear.testing.solver_checks import check_solver, solver_checks
from pear.testing.task_checks import check_task, task_checks

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
