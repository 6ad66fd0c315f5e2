"""The command line: ``main`` runs the command ``pear``."""

from __future__ import annotations

import sys

_NEEDED = ("typer", "rich", "click", "shellingham")


def main() -> None:
    """Run the command line. If a package that it needs is missing, print one sentence and exit with code 1."""
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
