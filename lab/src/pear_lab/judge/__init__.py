"""The judge of answers for all benchmarks and stress tests. It shares nothing with the library's own verification.

``judged_program`` holds one program as plain arrays. ``kkt_residuals`` measures the optimality conditions of a point.
``tangent_space`` computes the gradient of the regret there. ``certificates`` proves that a program has no solution.
``judge_answer`` combines them to a verdict. ``reference_solution`` solves a program with another package's solver.
"""
