"""The ``pear`` command."""

from __future__ import annotations

import sys

_NEEDED = ("typer", "rich", "click", "shellingham")


def main() -> None:
    """Run the command line; one sentence and exit code 1 where the packages it is built on are missing."""
    try:
        from pear.cli.app import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        print(
            f"The command line needs the package {package}, not installed here; run pip install 'pear-dfl[cli]'.",
            file=sys.stderr,
        )
        sys.exit(1)
    app()
