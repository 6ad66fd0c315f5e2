"""The laboratory of PEAR: real data, rival methods, experiments, benchmarks and stress tests.

Everything here measures or reproduces; users of the library do not need it. ``pear`` never imports this package. Its
commands (``pear reproduce``, ``pear report``, ``pear bench``, ``pear stress``) are found through entry points.
"""
