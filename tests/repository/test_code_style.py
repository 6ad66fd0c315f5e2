"""Code style: sizes of files and functions, one place for each tolerance, the words of the field."""

import ast
import re
import tomllib
from pathlib import Path

import pear
import pear_lab
from pear.optimality import rule
from pear.solvers.backend_registry import BACKENDS

SOURCE = Path(pear.__file__).parent
LAB = Path(pear_lab.__file__).parent
LIBRARY = sorted(SOURCE.rglob("*.py"))
FILES = [*LIBRARY, *sorted(LAB.rglob("*.py"))]
ROOT = Path(__file__).parents[2]
MAX_LINES, MAX_FUNCTION, MAX_PARAMETERS = 400, 60, 10
# Triton and numba compile these as single units; splitting them would cost time at every step.
KERNELS = {
    "solvers/active_set/gpu/dual_kernels.py:search_dual_kernel",
    "solvers/active_set/gpu/primal_kernels.py:search_primal_kernel",
    "solvers/linalg/elimination_order.py:minimum_degree_order",
}


def name(path):
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else LAB.parent))


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
    """Return whether a function may have many parameters: constructors of records, and functions with their options."""
    records = {
        "train/fit.py": "fit",
        "cli/train.py": "train_command",
        "problem/problem.py": "__init__",
        "train/estimator/regressor.py": "__init__",
        "cli/compare.py": "compare_command",
        "evaluation/walk_forward.py": "walk_forward",
    }
    return records.get(name(path)) == node.name


def test_no_function_with_many_parameters():
    many = {}
    for path, node in functions():
        arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([a for a in arguments if a not in ("self", "cls", "ctx")])
        if count > MAX_PARAMETERS and not is_kernel(node) and not is_record(path, node):
            many[f"{name(path)}:{node.name}"] = count
    assert many == {}


# Packages that judge points: here a tolerance is the rule's, or a setting of one method in a named place.
JUDGES = ("presolving", "optimality", "sensitivity", "decisions", "solvers/active_set", "losses", "train")
SETTINGS = {
    "presolving/tolerances.py": "rounding of the data that presolve compares",
    "solvers/active_set/settings.py": "settings of the active-set method",
    "sensitivity/dense_reduced_systems.py": "the shift of a factorisation",
    "sensitivity/sparse_reduced_systems.py": "shifts of a factorisation",
    "optimality/definiteness.py": "rounding of float32",
    "sensitivity/convexity.py": "rounding of Lanczos estimates",
    "decisions/newton_method.py": "Newton's method",
    "decisions/failure_proofs.py": "the search for a certificate, which the rule checks",
    "decisions/proximal_points.py": "the curvature that a proximal program adds; its solution is repaired without it",
}
NOT_A_TOLERANCE = 1e-100  # numbers below keep a division from overflowing


def numbers(node):
    """Yield the float literals that could be tolerances, with their lines."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, float) and NOT_A_TOLERANCE < part.value < 1e-5:
            yield part.value, part.lineno


def named(path):
    """Yield the names that a module assigns a constant to."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_a_tolerance_is_defined_once():
    """No other module defines a constant of the rule, and packages that judge results contain no tolerances."""
    again = []
    for path in LIBRARY:  # the laboratory judges by constants of its own, on purpose
        where = name(path)
        if where == "optimality/rule.py":
            continue
        again += [f"{where}: {one}" for one in named(path) if one.lstrip("_") in vars(rule)]
        if where.startswith(JUDGES) and where not in SETTINGS:
            again += [f"{where}:{line}: {value:g}" for value, line in numbers(tree(path))]
    assert again == []


def test_settings_are_where_they_are_said_to_be():
    assert [where for where in SETTINGS if not any(numbers(tree(SOURCE / where)))] == []


# Packages in which "binary" can only be a solver; elsewhere it is a kind of task, too.
ASKING = ("problem", "optimality", "solvers", "sensitivity", "decisions", "losses", "tasks", "train")


def test_no_solver_is_chosen_by_its_name():
    names = "|".join(re.escape(backend.name) for backend in BACKENDS)
    pattern = re.compile(rf"""(==|!=|\bin\b)\s*\(?["']({names})["']|\b(get|resolve)\(["']({names})["']""")
    chosen = []
    for path in FILES:
        if name(path) == "solvers/backend_registry.py" or not name(path).startswith(ASKING):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if pattern.search(line) and ">>>" not in line:
                chosen.append(f"{name(path)}:{number}: {line.strip()}")
    assert chosen == []


# Private words that a newcomer would have to learn, each with the field's word for it.
WORDS = {
    "fate": "status",
    "doomed": "screened",
    "strangers?": "unknown",
    "aliens?": "nonfinite",
    "the general way": "the pipeline",
    "the usual way": "the default path",
    "polish(ed|es)?": "repair",
    "bills?": "the true objective",
    "remember(ed|s)?": "keep, warm start",
    "open_to": "supports",
}


def test_the_words_of_the_field():
    found = []
    for path in FILES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            found += [f"{name(path)}:{number}: {line.strip()}" for word in WORDS if re.search(rf"\b{word}\b", line)]
    assert found == []


def test_formulas_keep_their_letters():
    """A docstring that begins with a formula keeps a vector lower-case: g = P e."""
    found = [name(path) for path in FILES if re.search(r'"""[A-Z] (=|\+|−=) [^ ]+ [a-z]', path.read_text("utf-8"))]
    assert found == []


def test_the_rooms_stand_in_contributing_in_the_order_of_the_contract():
    """CONTRIBUTING.md lists the packages in the order of the contract, without single modules."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for package, source in (("pear", SOURCE), ("pear_lab", LAB)):
        layers = next(one["layers"] for one in contracts if one.get("containers") == [package])
        rooms = [layer for layer in reversed(layers) if (source / layer).is_dir()]
        (said,) = re.findall(rf"^    {package}: +(.+)$", page, re.MULTILINE)
        assert said.split(" → ") == rooms
    assert {room for room in rooms if f"| `{room}` |" not in (ROOT / "lab/README.md").read_text("utf-8")} == set()
