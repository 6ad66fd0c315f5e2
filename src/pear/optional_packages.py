"""Imports of packages that extras of pear-dfl install, and checks that these packages are installed."""

from __future__ import annotations

import importlib.util
from typing import Any

from pear.errors import MissingExtraError


def import_optional(name: str, extra: str, what: str, otherwise: str = "") -> Any:
    """Import and return an optional package.

    Args:
        name: the name of the package, or of a module in it.
        extra: the extra of pear-dfl that installs the package.
        what: the feature that needs the package, for the error message.
        otherwise: what a user can do without the package, for the end of the error message.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        remedy = f"run pip install 'pear-dfl[{extra}]'"
        raise MissingExtraError(
            f"{what} needs the package {name.split('.')[0]}; {', '.join(filter(None, (remedy, otherwise)))}"
        ) from error


def import_pandas(what: str, otherwise: str = "") -> Any:
    """Import and return pandas. The arguments ``what`` and ``otherwise`` are those of ``import_optional``."""
    return import_optional("pandas", "sklearn", what, otherwise)


def require_packages(what: str, *packages: str) -> None:
    """Raise an error if packages of the extra ``cli`` are not installed. They are not imported.

    Args:
        what: the feature that needs the packages, for the error message.
        packages: the names of the packages.

    Raises:
        MissingExtraError: a package is not installed.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"{what} needs {package}, not installed here; run pip install 'pear-dfl[cli]'")
