"""An exact active-set solver for the CPU, compiled, for one program at a time.

The method is a simplex method that may stop between vertices. Rows get slacks, ``Jx + s = r`` (held at 0 for
equalities). Each of the N = n + R variables is *basic* (determined by the rows), *superbasic* (free to move, as many as
the tangent space has dimensions) or *nonbasic* (at a bound). B⁻¹ is the inverse of the basic columns, and W = B⁻¹ J_S.
The tangent space is spanned by Z = [−W; I], and the multipliers are y = B⁻ᵀ∇_B. The only system to solve, (ZᵀHZ) q =
−Zᵀ∇, is as small as the number of superbasics. A portfolio of 100 assets has one row and a handful of superbasics; an
LP has none.

Each round starts from a feasible point. It moves to the minimum of the working set. If a bound is met on the way, the
step ends there and the bound is added. At the minimum, the bound whose multiplier has the most wrong sign is dropped. A
warm start whose minimum is optimal costs one round. Every result is judged anew from the data, by the constants of
``pear.optimality.rule``. A sample that does not pass is given up and left to other solvers.

The modules, each using those before it: ``settings``, ``compiled_arrays`` (the records of arrays), ``products``
(products with rows and curvature), ``basis``, ``reduced_system`` (the system along the superbasic variables),
``pricing``, ``phases``, ``solution_check``, ``tangent`` (the projection), ``solve_sample`` (one program from data to
solution), ``compiled_tasks`` (the function that Python calls), ``compiled_batch`` (tensors and threads),
``active_set_solver`` (the row in the table of solvers).
"""
