"""The exact solver for 0-1 programs with few rows.

    max v·z,  low ≤ Gz ≤ h,  z_j ∈ {0, 1}

Each variable z_j says whether *item* j, of value v_j, is taken, and z is called a *selection*. ``tightened_rows``
tightens the rows. ``selection_search`` chooses the method. ``dynamic_programming`` solves programs with one row of
small whole weights. ``branch_and_bound`` solves all other programs. Its bounds come from a dual simplex method
(``simplex_dictionary``, ``dual_simplex``) and are valid in spite of rounding errors (``relaxation_bound``).
``binary_solver`` is the solver that the backend registry names. It solves each distinct program once, in threads, and
starts from earlier decisions that ``binary_plan`` keeps.
"""
