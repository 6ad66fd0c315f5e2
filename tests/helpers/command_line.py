"""The command line, run in this process."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import CliRunner, Result

from pear.cli.app import app

Run = Callable[..., Result]


def run(*arguments: object) -> Result:
    """Run ``pear`` with arguments; return its exit code and what it printed."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(result: Result) -> str:
    """Return what a command printed, with one space where it broke a line."""
    return " ".join(result.output.split())
