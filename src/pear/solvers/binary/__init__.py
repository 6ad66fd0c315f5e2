"""0-1 programs with few rows, solved exactly: presolve, dynamic programming, branch and bound; compiled.

    max v·z,  low ≤ Gz ≤ h,  z_j ∈ {0, 1}

``rows`` tightens the rows, ``search`` picks the method, ``dynamic`` fills one row of small whole weights, ``branch``
searches with a dual simplex method (``dictionary``, ``simplex``) whose bounds rounding cannot break (``relaxation``).
``solve`` is the backend: each distinct program once, several at a time, from the decisions that ``memory`` keeps.
"""
