"""Exact solution of 0-1 programs with few rows: presolve, dynamic programming, branch and bound; compiled.

    max v·z,  low ≤ Gz ≤ h,  z_j ∈ {0, 1}

``tightened_rows`` tightens the rows. ``selection_search`` picks the method. ``dynamic_programming`` solves programs
with one row of small whole weights. ``branch_and_bound`` searches with a dual simplex method (``simplex_dictionary``,
``dual_simplex``), whose bounds are safe against rounding (``relaxation_bound``). ``binary_solver`` is the row of the
registry. It solves each distinct program once, several at a time, and starts from earlier decisions that
``binary_plan`` keeps in a ``BoundedCache``.
"""
