"""``import_optional``: imports a package that an extra installs, or says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pear.errors import MissingExtraError


def import_optional(name: str, extra: str, what: str, otherwise: str = "") -> Any:
    """Import an optional package when it is needed, and return it.

    Args:
        name: the name of the package, or of a module in it.
        extra: the extra of pear-dfl that installs it.
        what: the feature that needs it, for the error message.
        otherwise: what to do without it, for the end of the message.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        remedy = f"run pip install 'pear-dfl[{extra}]'"
        raise MissingExtraError(
            f"{what} needs the package {name.split('.')[0]}; {', '.join(filter(None, (remedy, otherwise)))}"
        ) from error


def import_pandas(what: str, otherwise: str = "") -> Any:
    """Import pandas for ``what``; see ``import_optional``."""
    return import_optional("pandas", "sklearn", what, otherwise)
