"""Names that moved to the laboratory: the error says where each name is now, and it exists there."""

from __future__ import annotations

import importlib
import re

import pytest

import pear
import pear_lab.tasks

MODULES = ("bench", "experiments", "peers", "report")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_package_says_where_it_is(name: str) -> None:
    with pytest.raises(ImportError, match=r"is now pear_lab\.\w+, .*pip install pear-lab") as caught:
        getattr(pear, name)
    (there,) = re.findall(r"pear_lab\.\w+", str(caught.value))
    assert importlib.import_module(there)


@pytest.mark.parametrize("name", pear.tasks._MOVED)
def test_a_task_on_real_data_says_where_it_is(name: str) -> None:
    with pytest.raises(ImportError, match=rf"is now pear_lab\.tasks\.{name}; run pip install pear-lab"):
        getattr(pear.tasks, name)
    assert hasattr(pear_lab.tasks, name) or importlib.import_module(f"pear_lab.tasks.{name}")


@pytest.mark.parametrize("module", ["data", "tasks.market"])
def test_an_import_of_a_moved_module_says_where_it_is(module: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"pear.{module} is now pear_lab.{module}; run pip install")):
        importlib.import_module(f"pear.{module}")
    assert importlib.import_module(f"pear_lab.{module}")
