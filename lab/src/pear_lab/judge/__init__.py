"""The judge, which checks the answers of all benchmarks and stress tests without the library's own code.

``judged_program`` holds a program as plain arrays, and ``program_units`` rescales it. ``point_residuals`` measures the
optimality conditions at a point, and ``exact_tangent`` computes the gradient of the regret there. ``proofs`` proves
that a program has no solution. ``judge_answer`` makes a verdict on one answer from these parts, and ``integer_judge``
does so for integer programs. ``answer_accuracy`` rates answers on the scale of solver tolerances.
``reference_solution`` and ``linear_programs`` solve programs with packages other than PEAR.
"""
