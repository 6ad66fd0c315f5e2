"""The compilation of the numeric kernels, their cache on disk, threads, and CUDA graphs.

Kernels are plain Python functions that numba compiles. They take their decorators and helpers from
``pear.compile.jit``. The modules that import numba are imported by the first solve, not by ``import pear``.

======================  ============================================================================================
``jit``                 the decorators ``entry`` and ``inner``, and the choice between numba's private and public parts
``linking``             optimises a kernel once, together with all functions that it calls (private parts of numba)
``compact_arrays``      arrays and tuples that need few machine instructions to pass and index (private parts of numba)
``span``                a ``range`` that compiles to few machine instructions (private parts of numba)
``intrinsics``          functions that generate machine code, such as calls in OpenMP threads (private parts of numba)
``openmp``              finds the function of torch's OpenMP library that runs a kernel in the threads of torch
``plain_numba``         the fallback for the four modules with private parts, on numba's public interface
``kernel_cache``        empties numba's cache on disk when a source file has changed
``compilation_notice``  tells the user that kernels are being compiled
``thread_pools``        thread pools whose work can be stopped
``cuda_graphs``         captures functions of tensors as CUDA graphs and replays them
======================  ============================================================================================

The private parts were compared with plain ``numba.njit``, its cache and a ``ThreadPoolExecutor``. The numbers are for
numba 0.68.1, torch 2.13 and two cores. Each number is the best of repeated and interleaved runs. "As on the right"
means that compact arrays alone are as fast as all parts:

==================================================  ==========  ==========================  ==============
                                                    public way  compact arrays alone        all parts
==================================================  ==========  ==========================  ==============
first solve, nothing in the cache                   103 s       44 s                        9 s
first solve, kernels in the cache                   0.32 s      0.30 s                      0.28 s
64 gradients of paths in 5×5 grids, one thread      5.8 ms      3.1 ms                      2.8 ms
4096 gradients of paths in 5×5 grids, one thread    256 ms      as on the right             105 ms
64 gradients of 100-asset portfolios, one thread    13.0 ms     as on the right             5.9 ms
4096 gradients of 100-asset portfolios, one thread  698 ms      as on the right             301 ms
==================================================  ==========  ==========================  ==============

``linking`` changes the compile time only. Two OpenMP threads were also compared with two threads of a pool, right
after a multi-threaded matrix product of torch. OpenMP took 1.1 ms and the pool 1.7 ms for 64 paths, 1.3 and 2.3 ms for
64 portfolios, and 3.7 and 8.4 ms for 256 portfolios. On batches of 4096 samples, both take the same time.

The private parts are used with the versions of numba in ``jit.TRIED``, which are also the bounds in
``pyproject.toml``. Any other version, a missing private name, or ``PEAR_PLAIN_NUMBA=1`` in the environment selects
``plain_numba``. If torch's library lacks the OpenMP function, and in forked processes, a thread pool replaces OpenMP.
"""
