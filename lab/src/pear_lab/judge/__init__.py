"""The judge of answers for all benchmarks and stress tests. It shares nothing with the library's own verification.

``program`` holds one program as plain arrays. ``kkt`` measures the optimality conditions of a point, ``tangent`` the
gradient of the regret there, and ``certificates`` proves that a program has no solution. ``verdict`` combines them.
``reference`` solves a program with a solver of another package.
"""
