"""Extensions of griffe for mkdocstrings, where griffe, which reads code without running it, differs from Python."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Turn the heading of an example, ``Example:``, into ``Examples:``, under which griffe shows code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of a loaded object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


class Functions(griffe.Extension):
    """Make names such as ``pear.solve`` mean the function, although a module of the same package has this name."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Point a name that is imported from a package to the function, if this is what the package imports."""
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
