"""The shape of the code: what would make a newcomer change four places to change one."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import pear
from pear.optimality import rule
from pear.solvers.registry import BACKENDS

SOURCE = Path(pear.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MAX_LINES, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 10
# Triton and numba compile these as single units; splitting them would cost time at every step.
KERNELS = {"solvers/active_set/gpu/kernel.py:descend", "solvers/linalg/ordering.py:minimum_degree"}


def name(path):
    return str(path.relative_to(SOURCE))


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def functions():
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node


def test_no_long_file():
    long = {name(path): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {path: lines for path, lines in long.items() if lines > MAX_LINES} == {}


def test_no_long_function():
    long = {}
    for path, node in functions():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = node.end_lineno - body[0].lineno + 1 if body else 0
        if lines > MAX_FUNCTION and f"{name(path)}:{node.name}" not in KERNELS:
            long[f"{name(path)}:{node.name}"] = lines
    assert long == {}


def is_kernel(node):
    return any("entry" in ast.dump(mark) or "jit" in ast.dump(mark) for mark in node.decorator_list)


def is_record(path, node):
    """``__init__`` of the two public classes that are made of named fields."""
    return (name(path), node.name) in {("problem/problem.py", "__init__")}


def test_no_function_with_many_parameters():
    many = {}
    for path, node in functions():
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([a for a in arguments if a not in ("self", "cls", "ctx")])
        if count > MAX_PARAMETERS and not is_kernel(node) and not is_record(path, node):
            many[f"{name(path)}:{node.name}"] = count
    assert many == {}


RULE = {value: constant for constant, value in vars(rule).items() if constant.isupper()}
# Numbers that happen to equal a constant of the rule and mean something else, with what they mean.
OTHER_MEANING = {
    "solvers/registry.py": "accuracies asked of solvers",
    "solvers/adapters": "settings of other packages' solvers",
    "solvers/interior_point": "shifts and stopping of the method",
    "solvers/linalg": "shifts and refinement of factorisations",
    "sensitivity/sparse_reduced.py": "shifts of a factorisation",
    "sensitivity/curvature.py": "rounding of float32",
    "bench": "goals of the benchmarks, which judge independently",
}


def constants(path):
    """Named tolerances of a module: an assignment of a number below 1e-3 to a name in capitals."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(value, float) and 0 < value < 1e-3:
                    yield target.id, value


def literals(path):
    """Numbers below 1e-5 that stand inside functions, where a named constant belongs."""
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, float) and 1e-200 < part.value < 1e-5:
                    yield part.value, part.lineno


JUDGES = ("optimality", "sensitivity", "decisions", "solvers/active_set", "losses", "train")


def test_a_tolerance_is_defined_once():
    """Names of the rule stand in rule.py alone, and no judging package has a tolerance of its own beside it."""
    again = []
    for path in FILES:
        where = name(path)
        if where == "optimality/rule.py":
            continue
        for constant, value in constants(path):
            meaning = any(where.startswith(place) for place in OTHER_MEANING)
            if constant.lstrip("_") in vars(rule) or (value in RULE and where.startswith(JUDGES) and not meaning):
                again.append(f"{where}: {constant} = {value:g}")
        if where.startswith(JUDGES) and not any(where.startswith(place) for place in OTHER_MEANING):
            again += [f"{where}:{line}: {value:g}" for value, line in literals(path)]
    assert again == []


def test_no_solver_is_chosen_by_its_name():
    names = "|".join(re.escape(backend.name) for backend in BACKENDS)
    pattern = re.compile(rf"""(==|!=|\bin\b)\s*\(?["']({names})["']|(get|resolve)\(["']({names})["']""")
    chosen = []
    for path in FILES:
        if name(path) == "solvers/registry.py" or name(path).startswith(("bench/", "cli/")):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line) and ">>>" not in line:
                chosen.append(f"{name(path)}:{number}: {line.strip()}")
    assert chosen == []


ORDER = (
    *("errors", "problem", "optimality", "solvers", "sensitivity", "decisions", "losses"),
    *("data", "tasks", "train", "experiments", "report", "bench", "cli"),
)


def test_imports_follow_the_flow():
    """As the import contract says; here for whoever runs the tests alone."""
    against = []
    for path in FILES:
        here = name(path).split("/")[0].removesuffix(".py")
        for node in ast.walk(tree(path)):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                parts = module.split(".")
                known = parts[0] == "pear" and len(parts) > 1 and here in ORDER and parts[1] in ORDER
                if known and ORDER.index(parts[1]) > ORDER.index(here):
                    against.append(f"{name(path)} imports {module}")
    assert against == []


@pytest.mark.parametrize("package", ORDER)
def test_every_package_says_what_it_is(package):
    assert importlib.import_module(f"pear.{package}").__doc__


WORDS = r"\b(doomed|fate|fates|strangers|alien|aliens|the general way|the usual way|open_to|polish(ed|es)?|hints?)\b"


def test_the_words_of_the_field():
    """Private words that a newcomer would have to learn."""
    found = []
    for path in FILES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if re.search(WORDS, line) and "polishing" not in line and "type hints" not in line:
                found.append(f"{name(path)}:{number}: {line.strip()}")
    assert found == []
