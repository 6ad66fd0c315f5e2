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

That is the primal method. Strictly convex programs that share Hessian and rows, and have more inequalities than
equalities, are solved by a dual method instead: it begins at the minimum without inequalities and adds those that are
violated. A sample that it cannot finish goes to the primal method.

The modules, each using those before it:

=====================  ===============================================================================================
``settings``           tolerances and limits of the search
``kernel_arrays``      the named tuples of arrays that compiled functions read and write
``program_products``   products with the rows and the Hessian of a program
``working_set``        basic and superbasic variables, the inverse of the basis, exchanges
``multipliers``        multipliers of a working set, and the one that has the most wrong sign
``tangent_space``      the reduced Hessian, the search direction, and the projection
``search_phases``      phase one (a feasible point) and phase two (the minimum)
``dual_plan``          what the dual method computes once for programs that share Hessian and equalities
``dual_search``        the dual search: adds and drops constraints
``solution_check``     refines and judges a solution, and writes it to the results
``dual_solution``      refines a solution of the dual search, and projects at it
``solve_sample``       one program, from data and a start to a checked solution
``batch_kernel``       the compiled function that Python calls for a batch, and the regret of a sample
``kernel_calls``       converts tensors to arrays and calls the kernel in threads
``active_set_solver``  the solver of the registry
``solution_store``     keeps warm starts and best decisions of samples between calls
``compiled_pass``      the fused pass: decisions, regrets and gradients of a batch
=====================  ===============================================================================================
"""
