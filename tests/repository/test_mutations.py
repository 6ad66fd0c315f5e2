"""The runner of mutation tests: its changes, their names, and their effect."""

import ast
import gc
import types
from collections import defaultdict
from pathlib import Path

import pytest
from scripts import import_script

SOURCE = '''
"""A module."""
import logging

logger = logging.getLogger("pear")
LIMIT = 3


def count(values: list[int], least: int = 1, *, all_of_them: bool = False) -> int:
    """Numbers of at least 1."""
    logger.debug("%d", 5)
    if not values:
        raise ValueError(f"{0 + 1} values")
    return sum(v >= least and v < LIMIT for v in values[:-1]) - max(values)
'''
LAST = "sum((v >= least and v < LIMIT for v in values[:-1])) - max(values)"
CHANGES = {
    "LIMIT = 4",
    "least=0",
    "all_of_them=True",
    "not not values",
    LAST.replace("and", "or"),
    LAST.replace(">=", ">"),
    LAST.replace("<", "<="),
    "values[:+1]",
    "values[:-0]",
    LAST.replace(" - ", " + "),
    LAST.replace("max", "min"),
}


mutations = import_script(Path(__file__).parents[2] / "tools" / "mutations.py")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "counting.py").write_text(SOURCE)
    return tmp_path / "counting.py"


def one(path, change):
    return next(m for m in mutations.mutants(path, path.parent) if m.change.endswith(change))


def test_every_small_change_and_no_message(path):
    found = [m.change.split(" → ")[1].strip("`").removeprefix("return ") for m in mutations.mutants(path, path.parent)]
    assert sorted(found) == sorted(CHANGES)


def test_names_do_not_depend_on_lines(path):
    before = [m.key for m in mutations.mutants(path, path.parent)]
    path.write_text("# a comment\n\n" + SOURCE)
    assert [m.key for m in mutations.mutants(path, path.parent)] == before
    assert len(set(before)) == len(before)


def test_each_mutant_is_one_change(path):
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for m in mutations.mutants(path, path.parent):
        lines = ast.unparse(mutations.mutated(path, m.index)).splitlines()
        assert sum(a != b for a, b in zip(original, lines, strict=True)) == 1


def test_a_change_reaches_functions_that_are_bound_elsewhere(path):
    count = import_script(path, "counting").count
    live = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is types.FunctionType:
            code = thing.__code__
            live[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    assert count([0, 1, 2, 3, 3]) == -1
    mutations.exchange(one(path, "min(values)`"), path.parent, live)
    assert count([0, 1, 2, 3, 3]) == 2
    mutations.exchange(one(path, "`least=0`"), path.parent, live)
    assert count([0, 1, 2, 3, 3]) == 0
