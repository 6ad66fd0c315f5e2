"""Losses and layers under ``torch.compile``: solvers are no graph, and nothing in them is worth tracing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def eager(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function as one that ``torch.compile`` leaves out of its graphs: the graph ends before it and begins after.

    ``torch.compiler.disable`` alone would do, but it imports the compiler, which takes as long as torch itself. Here
    only who compiles waits for it.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call
