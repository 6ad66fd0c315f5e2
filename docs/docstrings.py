"""Read by mkdocstrings: what griffe, which reads the code without running it, sees otherwise than Python does."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Turns the heading of an example, ``Example:``, into the one that griffe shows code under."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of a loaded object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


class Functions(griffe.Extension):
    """``pear.solve`` is the function, though a module of the package that it is imported from has its name."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Lead names that are imported from a package to the function, where that is what the package imports."""
        functions: dict[str, str] = {}
        packages = [pkg]
        for package in packages:
            packages += [part for part in package.members.values() if not part.is_alias and part.is_module]
            functions |= {
                f"{package.path}.{name}": path
                for name, path in package.imports.items()
                if path == f"{package.path}.{name}.{name}"
            }
        for name, member in list(pkg.members.items()):
            if member.is_alias and (path := functions.get(member.target_path)):
                pkg.set_member(name, griffe.Alias(name, path))
