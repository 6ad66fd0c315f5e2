"""Commands whose options are the fields of a dataclass, and lists of numbers in an option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from pear.cli.csv_table import split_at_commas
from pear_lab.experiments.experiment_errors import ExperimentError


def option_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Make the parameter of one option, annotated as typer reads it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def dataclass_parameters(options: type) -> list[inspect.Parameter]:
    """Make an option for every field of a dataclass whose types are annotated for typer."""
    types = get_type_hints(options, include_extras=True)
    return [option_parameter(one.name, types[one.name], one.default) for one in fields(options)]


def make_command(
    body: Callable[..., None], help: str | None, options: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Make a function that typer takes for a command with these options; ``body`` gets their values by name."""

    def run(**given: Any) -> None:
        body(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__doc__ = help
    return run


def parse_numbers(what: str, text: str) -> list[int]:
    """Parse whole numbers and ranges of them, separated by commas. ``what`` names the option in the error message.

    Example:
        >>> parse_numbers("seeds", "0-2,7")
        [0, 1, 2, 7]
    """
    found: list[int] = []
    for word in split_at_commas(text):
        first, dash, last = word.partition("-")
        try:
            found += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            found = []
            break
    if not found:
        raise ExperimentError(f"--{what} must be whole numbers or ranges of them, such as 0-4 or 0,2; got {text!r}")
    return list(dict.fromkeys(found))
