"""The judge of answers for all benchmarks and stress tests. It shares no code with the library's own verification.

``judged_program`` holds a program as plain arrays, and ``program_units`` rescales it. ``point_residuals``
measures the optimality conditions at a point, and ``exact_tangent`` computes the gradient of the regret there.
``proofs`` proves that a program has no solution. ``judge_answer`` combines them to a verdict on one answer, and
``integer_judge`` does so for integer programs. ``answer_accuracy`` rates answers on the scale of solver
tolerances. ``reference_solution`` and ``linear_programs`` solve programs with packages other than PEAR.
"""
