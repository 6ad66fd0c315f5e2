"""What is optimised: the problem as the user writes it, and the batch form everything behind it works on."""

from pear.problem.canonical import QuadraticProgram
from pear.problem.cost_map import CostMap
from pear.problem.model import Model
from pear.problem.problem import Problem
from pear.problem.smooth import Smooth

__all__ = ["CostMap", "Model", "Problem", "QuadraticProgram", "Smooth"]
