"""The problem as the user writes it, and the batch of programs that all other packages work on."""

from pear.problem.constraint_map import ConstraintMap
from pear.problem.cost_map import CostMap
from pear.problem.known_map import KnownMap
from pear.problem.model import Model
from pear.problem.oracle import Oracle
from pear.problem.penalty_and_projection import Penalty, Projection
from pear.problem.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.problem.smooth_term import Smooth

__all__ = [
    "ConstraintMap",
    "CostMap",
    "KnownMap",
    "Model",
    "Oracle",
    "Penalty",
    "Problem",
    "Projection",
    "QuadraticProgram",
    "Smooth",
]
