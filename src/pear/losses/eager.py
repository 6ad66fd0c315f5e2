"""``eager``: a decorator for functions that ``torch.compile`` must not trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from pear.errors import ProblemError

_NO_STORAGE = "doesn't have storage"
"""The words in torch's error when NumPy asks for the memory of a tensor that a transform traces."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def eager(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function so that ``torch.compile`` does not trace it.

    ``torch.compiler.disable`` does the same, but it imports the compiler, which takes as long as importing torch. This
    decorator imports the compiler only during compilation.

    The transforms of ``torch.func`` cannot trace the function either: under them, it raises a ``ProblemError``.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if _NO_STORAGE not in str(error):
                raise
            raise ProblemError(
                "the transforms of torch.func (vmap, grad, jacrev) cannot trace a solver; pass all samples in one "
                "call, and differentiate by backward() or torch.autograd"
            ) from error

    return call
