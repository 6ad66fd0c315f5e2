"""The compiled fast path of ``fit``: whole epochs of a linear model under ``PEARLoss`` and Adam.

``epoch`` is the kernel, ``linear`` prepares what it reads and takes back what it writes. ``ahead`` compiles it, and the
solvers, before anybody has to wait for it: ``pear compile``, or ``python -m pear.train.compiled``.
"""

from pear.train.compiled.linear import LinearEpochs

__all__ = ["LinearEpochs"]
