"""Lines of code of the library and of the laboratory, by room. A room is a top-level package.

python tools/count_lines.py [--files]

Docstrings, comments and blank lines are not counted.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("src/pear", "lab/src/pear_lab")
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Return the number of lines of a source text that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print a table of lines for each package."""
    by_file = "--files" in sys.argv[1:]
    for package in PACKAGES:
        counts: Counter[str] = Counter()
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT / package)
            counts[str(place if by_file else place.parts[0])] += code_lines(path.read_text("utf-8"))
        print(f"{package}: {sum(counts.values()):,} lines of code")
        for place, count in counts.items():
            print(f"  {count:6,}  {place}")


if __name__ == "__main__":
    main()
