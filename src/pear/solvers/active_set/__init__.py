"""An exact active-set solver for the CPU, compiled: one program at a time.

It is a simplex method that may stop between vertices. Rows get slacks, ``Jx + s = r`` (held at 0 for equalities), and
every one of the N = n + R variables is *basic* (determined by the rows), *superbasic* (free to move, as many as the
tangent space has dimensions) or *nonbasic* (at a bound). With B⁻¹ the inverse of the basic columns and W = B⁻¹ J_S, the
tangent space is spanned by Z = [−W; I], the multipliers are y = B⁻ᵀ∇_B, and everything that is solved is as small as
the number of superbasics: (ZᵀHZ) q = −Zᵀ∇. A portfolio of 100 assets has one row and a handful of superbasics; an LP
has none.

From a feasible point, each round either moves to the minimum of the working set, or stops at the first bound on the
way and takes it in, or lets go of the bound with the most wrongly signed multiplier. A warm start whose minimum
is optimal costs one round. Whatever comes out is judged afresh from the data, by the constants of
``pear.optimality.rule``; what does not pass is given up, and left to other solvers.

The modules, each using those before it: ``settings``, ``layout`` (the arrays), ``products`` (with rows and curvature),
``basis``, ``reduced`` (the system along the superbasic variables), ``pricing``, ``phases``, ``acceptance`` (the check
of a solution), ``tangent`` (the projection), ``sample`` (one program from data to solution), ``kernels`` (what Python
calls), ``batch`` (tensors and threads), ``active_set_solver`` (the row in the table of solvers).
"""
