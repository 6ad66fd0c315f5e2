"""The mutants of a file: every small change of its code that a test should notice, each with a permanent name.

A mutation changes one node of the syntax tree and keeps all line numbers, so that the code object of a function can be
exchanged in a running process. The name of a mutant consists of its file, its function and the changed piece of code.
It has no line number, so that a judgement about the mutant survives edits elsewhere in the file.
"""

from __future__ import annotations

import ast
import hashlib
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.USub: ast.UAdd,
}
NAMES = {a: b for pair in ("amax amin", "maximum minimum", "any all", "max min") for a, b in (pair.split(),)}
NAMES |= {b: a for a, b in NAMES.items()}
IGNORED_KEYWORDS = {"strict", "stacklevel", "repr"}  # checks that never fail, where a warning points, how it prints
CONTEXT, LONGEST = 70, 200  # characters of code that name a mutation: as a rule, and where less would be a bare number


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: the path of the file, relative to ``src/pear``.
        function: the qualified name of the innermost function; ``<module>`` outside functions.
        change: the code before and after the change, with a number if the function has several equal changes.
        index: the position among the mutants of the file.
        outer: the qualified name and the first line of the outermost function; None outside functions.
        default: whether the change is in a default value of a parameter of the outermost function.
        lines: the first and last line of the changed statement; for a statement with a body (such as ``if``), those of
            the changed part of its head.
    """

    file: str
    function: str
    change: str
    index: int
    outer: tuple[str, int] | None
    default: bool
    lines: tuple[int, int]

    @property
    def key(self) -> tuple[str, str, str]:
        """The permanent name of the mutant: file, function and change."""
        return self.file, self.function, self.change

    def rank(self, seed: int) -> str:
        """Return a text by which mutants are sorted into a random order. It does not depend on other mutants."""
        return hashlib.sha256(f"{seed}|{'|'.join(self.key)}".encode()).hexdigest()


@dataclass
class _Site:
    """A place for a change: a node, its field, the new value of the field, and the nodes around it, outermost first."""

    node: ast.AST
    field: str
    value: Any
    above: tuple[ast.AST, ...]


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of the file ``path``, which is below the folder ``root``."""
    found, seen = [], Counter[tuple[str, str]]()
    for index, site in enumerate(_sites(ast.parse(path.read_text("utf-8")))):
        definitions = [n for n in site.above if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        depth = next((i for i, n in enumerate(definitions) if isinstance(n, ast.FunctionDef)), None)
        outer = None
        default = False
        if depth is not None:
            first = definitions[depth]
            line = min([first.lineno, *(mark.lineno for mark in first.decorator_list)])
            outer = ".".join(n.name for n in definitions[: depth + 1]), line
            default = first.args in site.above  # type: ignore[attr-defined]
        function = ".".join(n.name for n in definitions) if depth is not None else "<module>"
        change = _describe(site)
        seen[function, change] += 1
        if seen[function, change] > 1:
            change += f" #{seen[function, change]}"
        found.append(Mutant(str(path.relative_to(root)), function, change, index, outer, default, _lines(site)))
    return found


def mutated(path: Path, index: int) -> ast.Module:
    """Return the syntax tree of a file, changed by its mutation number ``index``."""
    tree = ast.parse(path.read_text("utf-8"))
    site = next(site for i, site in enumerate(_sites(tree)) if i == index)
    setattr(site.node, site.field, site.value)
    return ast.fix_missing_locations(tree)


def exchange(mutant: Mutant, root: Path, live: dict[tuple[str, str, int], list[types.FunctionType]]) -> None:
    """Put the changed code of a mutant into the functions of this process.

    Args:
        mutant: the mutant.
        root: the folder that holds the mutant's file.
        live: the functions of the process, by the path of their file, their qualified name and their first line.
    """
    path = root / mutant.file
    tree = mutated(path, mutant.index)
    todo = [compile(tree, str(path), "exec", dont_inherit=True)]
    while todo:
        code = todo.pop()
        todo += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        for function in live.get((str(path), code.co_qualname, code.co_firstlineno), []):
            function.__code__ = code
    if not mutant.default or mutant.outer is None:
        return
    name, line = mutant.outer
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name.split(".")[-1]]
    definition = next(n for n in found if min([n.lineno, *(d.lineno for d in n.decorator_list)]) == line)
    for function in live.get((str(path), name, line), []):

        def value(node: ast.expr, names: dict[str, Any] = function.__globals__) -> Any:
            return eval(compile(ast.Expression(node), str(path), "eval"), names)

        arguments = definition.args
        function.__defaults__ = tuple(map(value, arguments.defaults)) or None
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        function.__kwdefaults__ = {a.arg: value(d) for a, d in named if d is not None}


def _sites(tree: ast.Module) -> Iterator[_Site]:
    """Yield every possible change, in the order of the file."""
    yield from _visit(tree, ())


def _visit(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[_Site]:
    if _is_ignored(node):
        return
    for field, value in _changes(node):
        yield _Site(node, field, value, above)
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for part in child if isinstance(child, list) else [child]:
            if isinstance(part, ast.AST):
                yield from _visit(part, (*above, node))


def _is_ignored(node: ast.AST) -> bool:
    """Return whether a node is never changed: a message, logging, or code without an effect on results."""
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in IGNORED_KEYWORDS
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.value.id == "logger"
    return False


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the changes of a node as pairs of a field and its new value."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                if type(op) in COMPARISONS:
                    yield "ops", [*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]]
        case ast.BinOp() if _is_text(node.left) or _is_text(node.right):
            return
        case ast.BinOp(op=ast.Mult(), right=ast.Name(id="sign") | ast.Attribute(attr="sign")):
            return  # by ±1, which is its own inverse
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield "op", OPERATORS[type(node.op)]()
        case ast.UnaryOp(op=ast.USub()):
            yield "op", ast.UAdd()
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "operand", ast.UnaryOp(type(node.op)(), node.operand)  # twice is not at all
        case ast.Constant(value=bool()):
            yield "value", not node.value
        case ast.Constant(value=int() | float()):
            yield "value", type(node.value)(0 if node.value == 1 else node.value + 1)
        case ast.Attribute() if node.attr in NAMES:
            yield "attr", NAMES[node.attr]
        case ast.Name() if node.id in NAMES:
            yield "id", NAMES[node.id]
        case ast.Slice():
            for field in ("lower", "upper"):
                bound = getattr(node, field)
                if bound is not None and not isinstance(bound, (ast.Constant, ast.UnaryOp)):  # whose number changes
                    yield field, ast.BinOp(bound, ast.Add(), ast.Constant(1))


def _is_text(node: ast.AST) -> bool:
    """Return whether an operand is a text, a list or a tuple, for which + has no counterpart."""
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _describe(site: _Site) -> str:
    """Return the code around the change, before and after the change."""
    shown, name = site.node, ""
    for node in reversed(site.above):
        if isinstance(node, ast.arguments):
            name = _parameter(node, shown)
        if not isinstance(node, (ast.expr, ast.keyword, ast.Slice, ast.Assign, ast.AugAssign, ast.Return)):
            break
        if len(ast.unparse(node)) > (LONGEST if isinstance(shown, ast.Constant) else CONTEXT):
            break
        shown = node
    old, kept = ast.unparse(shown), getattr(site.node, site.field)
    setattr(site.node, site.field, site.value)
    new = ast.unparse(ast.fix_missing_locations(shown))
    setattr(site.node, site.field, kept)
    return f"`{name}{old}` → `{name}{new}`".replace("\n", " ")


def _parameter(arguments: ast.arguments, default: ast.AST) -> str:
    """Return ``name=`` for the parameter with this default value; empty if there is none."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return next((f"{argument.arg}=" for argument, value in pairs if value is default), "")


def _lines(site: _Site) -> tuple[int, int]:
    """Return the first and last line of the changed statement; with a body, those of the changed part of its head."""
    chain = (*site.above, site.node)
    at = max(i for i, node in enumerate(chain) if isinstance(node, (ast.stmt, ast.Module)))
    inner = chain[at + 1] if at + 1 < len(chain) else chain[at]
    shown = inner if hasattr(chain[at], "body") and hasattr(inner, "lineno") else chain[at]
    return getattr(shown, "lineno", 1), getattr(shown, "end_lineno", 1)
