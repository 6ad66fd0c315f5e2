"""The built-in interior-point solvers: ``dense_interior_point`` and ``sparse_interior_point``.

Both implement Mehrotra's method. The dense solver moves a whole batch at once, on the CPU or on a GPU. Its iterates are
never copied from the GPU to the host, because copies would make it slow. The sparse solver works on the non-zeros of
one program at a time, on the CPU. ``keeps_quadratic_program_sparse`` decides which programs are sparse.

On programs with many zeros the sparse solver is faster. These are processor milliseconds to an accuracy of 1e-8:

==================================  =====  ======
program                             dense  sparse
==================================  =====  ======
paths on a 20×20 grid, one sample   25     5.5
paths on a 20×20 grid, 64 samples   2,900  335
paths on a 30×30 grid, one sample   213    8
==================================  =====  ======
"""
