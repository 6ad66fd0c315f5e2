"""An exact active-set solver. On the CPU it is compiled and solves one program at a time; ``gpu`` has kernels for GPUs.

The *primal method* is a simplex method that may stop between vertices. A program has n variables x and R rows J =
[A; G]. The rows get slacks s, with ``Jx + s = r`` for the right-hand sides r; the slacks of equalities are held at 0.
Each of the N = n + R variables, slacks included, is *basic* (determined by the rows), *superbasic* (free to move) or
*nonbasic* (at a bound). The tangent space has as many dimensions as there are superbasic variables. B is the matrix of
the basic columns, and W = B⁻¹J_S, where J_S has the superbasic columns. The tangent space is spanned by the columns of
Z = [−W; I]. H is the Hessian and ∇ the gradient of the objective, with the part ∇_B for the basic variables. The
multipliers are y = B⁻ᵀ∇_B. The superbasic variables move by the solution q of (ZᵀHZ) q = −Zᵀ∇. This is the only system
to solve, and it has one unknown for each superbasic variable. A portfolio of 100 assets has one row and a handful of
superbasic variables. A vertex of an LP has none.

The bounds of the nonbasic variables are the *working set*. Each round starts from a feasible point and moves to the
minimum on the working set. If the point meets a bound on the way, the step ends there and the bound joins the working
set. At the minimum, the bound whose multiplier has the most wrong sign leaves the working set. A warm start whose
minimum is optimal costs one round. Every result is checked anew from the data, by the constants of
``pear.optimality.rule``. A sample that does not pass is given up and left to other solvers.

The *dual method* solves programs with many inequalities that share the equality rows and the Hessian, which is positive
definite on the null space of these rows. It begins at the minimum without inequalities and adds those that are
violated. A sample that the dual method cannot finish goes to the primal method.

The modules, each of which uses only those before it:

=========================  ============================================================================================
``settings``               tolerances and limits of the search
``kernel_arrays``          the named tuples of arrays that compiled functions read and write
``program_products``       products with the rows and the Hessian of a program
``compiled_sizes``         natural sizes of decisions and rows
``basis_and_superbasics``  basic and superbasic variables, the inverse of the basis, and how variables change places
``multipliers``            multipliers of a working set, and the one that has the most wrong sign
``reduced_hessian``        the reduced Hessian and its factor
``search_phases``          the primal search: phase one (a feasible point) and phase two (the minimum)
``basis_starts``           the starts of the primal search
``dual_plan``              what the dual method computes once for programs that share the Hessian and the equality rows
``gram_matrix``            the Gram matrix of the dual method, and the factor of its part for the working set
``dual_working_set``       the constraints that the dual method holds
``dual_search``            the dual search, which adds and drops constraints
``solution_check``         refines a solution, checks it, and writes it to the results
``dual_solution``          refines a solution of the dual search
``sample_program``         the program of one sample, loaded into the workspace
``solve_sample``           one program, from a start to a checked solution
``error_projection``       projections at a solution of either method
``sample_regret``          the regret of one sample and its gradient
``batch_kernel``           the compiled function that Python calls for a batch
``program_packing``        converts the fields of a problem to arrays
``kernel_threads``         the threads that share a batch, and their memory
``kernel_calls``           calls the batch kernel from Python
``compiled_projector``     projections and backward passes from the working sets of solutions
``active_set_solver``      the solver of the registry
``solution_store``         keeps warm starts and best decisions of samples between calls
``compiled_programs``      the programs of a problem in compiled form
``compiled_pass``          the fused pass: decisions, regrets and gradients of a batch
=========================  ============================================================================================
"""
