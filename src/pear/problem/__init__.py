"""What is optimised: the problem as the user writes it, and the batch form everything behind it works on."""

from pear.problem.canonical import QuadraticProgram
from pear.problem.problem import Problem
from pear.problem.smooth import Smooth

__all__ = ["Problem", "QuadraticProgram", "Smooth"]
