"""A hook of mkdocs: it turns TeX into MathML at build time, which browsers draw without a script or a network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What the extension pymdownx.arithmatex makes of $…$ and of a block ```math.
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])\s*</\1>', re.DOTALL
)
_UNKNOWN = re.compile(r">\\[A-Za-z]+<")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Replace every formula of a page.

    Raises:
        PluginError: a formula has a command that the converter does not know.
    """

    def mathml(match: re.Match[str]) -> str:
        tex = html.unescape(match["inline"] or match["block"]).strip()
        made = convert(tex, display="inline" if match["inline"] else "block")
        if unknown := _UNKNOWN.search(made):
            raise PluginError(f"{page.file.src_path}: {unknown.group()[1:-1]} in the formula {tex} is not known")
        return f'<{match[1]} class="formula">{made}</{match[1]}>'

    return _FORMULA.sub(mathml, content)
