"""Losses and layers under ``torch.compile``: a solver cannot be traced, so that the graph breaks around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def eager(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make ``torch.compile`` leave a function out of its graphs.

    ``torch.compiler.disable`` alone would do, but it imports the compiler, which takes as long as torch itself. Here
    the compiler is imported only where something is compiled.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call
