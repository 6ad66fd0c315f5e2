"""Commands whose options are the fields of a dataclass, and the parsing of options that are lists of numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from pear.cli.csv_table import split_at_commas
from pear_lab.experiments.experiment_errors import ExperimentError


def option_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return the parameter of a function that typer reads as one option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def dataclass_parameters(options: type) -> list[inspect.Parameter]:
    """Return one option for each field of a dataclass, as parameters. The fields have annotations for typer."""
    types = get_type_hints(options, include_extras=True)
    return [option_parameter(one.name, types[one.name], one.default) for one in fields(options)]


def make_option_command(
    body: Callable[..., None], help: str | None, options: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return a function that typer accepts as a command.

    Args:
        body: function that is called with the values of the options, by name.
        help: the help text of the command.
        options: the parameters of the options.
    """

    def call_with_options(**given: Any) -> None:
        body(**given)

    call_with_options.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call_with_options.__doc__ = help
    return call_with_options


def parse_numbers_option(what: str, text: str) -> list[int]:
    """Return the integers that a text lists, each once. The text has numbers and ranges, separated by commas.

    Args:
        what: the name of the option, for the error message.
        text: the value of the option.

    Raises:
        ExperimentError: the text has another form.

    Example:
        >>> parse_numbers_option("seeds", "0-2,7")
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
