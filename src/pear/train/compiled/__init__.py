"""The compiled fast path of ``fit``: whole epochs of a linear model under ``PEARLoss`` and Adam.

``epoch`` is the kernel, ``linear`` prepares what it reads and takes back what it writes. ``python -m
pear.train.compiled`` compiles it, and the active-set method that it calls into, before anybody has to wait for it.
"""

from pear.train.compiled.linear import LinearEpochs

__all__ = ["LinearEpochs"]
