"""The built-in interior-point solvers: ``dense_interior_point`` and ``sparse_interior_point``.

Both implement Mehrotra's method, and neither can replace the other. ``dense_iterates`` moves a whole batch at once. It
works on tensors and copies none of them to the host, because such copies would slow a GPU down. ``sparse_iterates``
works on the non-zeros of one program at a time. To an accuracy of 1e-8, the processor times of the dense and the sparse
solver on the CPU are 25 and 5.5 ms for one sample of paths on a 20×20 grid, 2,900 and 335 ms for 64 such samples, and
213 and 8 ms for one sample on a 30×30 grid. Programs without zeros are stored as dense programs and never reach
``sparse_iterates``.
"""
