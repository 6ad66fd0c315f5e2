"""``eager``: a decorator for functions that ``torch.compile`` must not trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def eager(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function so that ``torch.compile`` does not trace it.

    ``torch.compiler.disable`` does the same, but it imports the compiler, which takes as long as importing torch. This
    decorator imports the compiler only during compilation.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call
