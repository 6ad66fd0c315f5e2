"""Scripts of the repository, imported as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_script(path: Path, name: str | None = None) -> ModuleType:
    """Import a script, which finds the scripts beside it; its name is that of the file unless another one is given."""
    name = path.stem if name is None else name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses look for annotations
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
