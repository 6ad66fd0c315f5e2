"""The fused pass of the active-set method: compiled on the CPU, one kernel on a GPU."""

from __future__ import annotations

from pear.problem import Problem
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.active_set.gpu.gpu_pass import GPUPass
from pear.solvers.fused import FusedPass
from pear.solvers.warm_starts import WarmStarts


def fused_pass(problem: Problem, starts: WarmStarts, name: str) -> FusedPass | None:
    """Return the pass for this problem's device; None where the problem is not dense, or too large.

    Args:
        problem: the decision problem, continuous.
        starts: the store of warm starts; the pass on a GPU keeps none.
        name: the name of the solver. The pass and the pipeline share the plan of the constraints under this name.
    """
    if CompiledPass.supports(problem):
        return CompiledPass(problem, starts)
    return GPUPass(problem, name) if GPUPass.supports(problem) else None
