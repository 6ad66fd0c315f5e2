"""The built site: every page in a browser, and what the pages say about the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import WIDTHS, Browser
from built_site import ROOT
from scripts import import_script

import pear

pytestmark = pytest.mark.slow  # the browser: made once, by the first test that asks

DOCS = ROOT / "docs"
# The theme's drawer of chapters lies beside the window until it is opened. What is left is the page itself.
SEE = """
() => {
  document.querySelectorAll('.md-sidebar').forEach(drawer => drawer.remove());
  const drawn = all => [...document.querySelectorAll(all)].map(one => one.getBoundingClientRect().width > 3);
  return {formulas: drawn('math'), pictures: drawn('article img')};
}
"""
SEARCH = """
async () => {
  const field = document.querySelector('.md-search__input');
  field.focus();
  field.value = 'knapsack';
  field.dispatchEvent(new Event('keyup', {bubbles: true}));
  for (let i = 0; i < 200 && !document.querySelector('.md-search-result__link'); i++)
    await new Promise(done => setTimeout(done, 50));
  return [...document.querySelectorAll('.md-search-result__link')].map(link => link.getAttribute('href'));
}
"""


def count(text: str, pattern: str) -> int:
    return len(re.findall(pattern, text))


def test_every_page_is_whole_at_every_width(site: Path, browser: Browser) -> None:
    """Each page has no error, no network request, no element cut off, and all of its pictures and formulas."""
    pages = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    del pages["404.html"]  # which only a server shows, under addresses that no file has
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    faults = []
    for name, path in pages.items():
        text = path.read_text("utf-8")
        article = text[text.index("<article") : text.index("</article>")]
        expected = count(article, "<math "), count(article, "<img ")
        for width, view in zip(WIDTHS, browser.views(path, script=SEE), strict=True):
            found = view.faults()
            drawn = sum(view.told["formulas"]), sum(view.told["pictures"])
            if drawn != expected:
                found.append(f"{drawn} formulas and pictures are drawn of {expected}")
            faults += [f"{name} at {width} pixels: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


def test_wide_tables_and_formulas_scroll_in_their_own_box(site: Path, browser: Browser) -> None:
    views = {name: browser.look(site / name, 390, SEE) for name in ("speed.html", "how-it-works.html", "idea.html")}
    assert any(box.startswith("div.md-typeset__scrollwrap") for box in views["speed.html"].scrolling)
    assert any(box.startswith("div.formula") for box in views["how-it-works.html"].scrolling)
    assert sum(box.startswith("p ") for box in views["idea.html"].scrolling) == 4  # pictures keep a size to be read in


def test_the_search_works_from_files(site: Path, browser: Browser) -> None:
    view = browser.look(site / "index.html", 1300, SEARCH)
    assert not view.console
    assert any("integrations/files.html" in link for link in view.told), view.told


def test_formulas_are_converted_when_the_site_is_built(site: Path) -> None:
    page = (site / "how-it-works.html").read_text("utf-8")
    assert count(page, "<math ") == count((DOCS / "how-it-works.md").read_text("utf-8"), "```math") > 3
    assert "arithmatex" not in page


def test_an_unknown_command_in_a_formula_is_an_error() -> None:
    exceptions = pytest.importorskip("mkdocs.exceptions")
    pytest.importorskip("latex2mathml")
    hook = import_script(DOCS / "mathematics.py")

    class Page:
        class file:  # noqa: N801
            src_path = "page.md"

    written = '<span class="arithmatex">\\(x \\le 1\\)</span>'
    assert "&#x02264;" in hook.on_page_content(written, Page)
    with pytest.raises(exceptions.PluginError, match=r"page.md: \\unheard in the formula x \\unheard 1 is not known"):
        hook.on_page_content(written.replace("le", "unheard"), Page)


def test_the_reference_shows_public_names_only(site: Path) -> None:
    shown = re.findall(r'id="(pear\.[^"]+)"', (site / "reference.html").read_text("utf-8"))
    assert not [name for name in shown if "._" in name]
    modules = {"losses", "scenarios", "tasks", "testing", "boosting"}
    roots = set(shown) | {f"pear.{name.rpartition('.')[2]}" for name in shown if name.startswith("pear.errors.")}
    assert {f"pear.{name}" for name in pear.__all__ if name not in modules} <= roots
    # a function, and not the module that it lives in with everything else there
    assert not [name for name in shown if re.match(r"pear\.(solve|regret|fit|tune|diagnose|advise)\.", name)]


def test_what_is_to_be_extended_is_where_the_page_says() -> None:
    named = re.findall(r"`((?:src|lab|tests|docs|tools)/[^`]+)`", (DOCS / "extend.md").read_text("utf-8"))
    assert len(named) > 12
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_front_pages_have_the_same_ten_lines() -> None:
    readme, home = (path.read_text("utf-8") for path in (ROOT / "README.md", DOCS / "index.md"))
    assert re.findall(r"```python\n.*?```", readme, re.S)[0] == re.findall(r"```python\n.*?```", home, re.S)[0]


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_every_picture_of_the_idea_is_drawn_by_the_library(tmp_path: Path) -> None:
    pictures = import_script(ROOT / "tools" / "pictures.py")
    written = pictures.main(tmp_path)
    shown = re.findall(r"\(images/(idea-[^)]+)\)", (DOCS / "idea.md").read_text("utf-8"))
    assert sorted(path.name for path in written) == sorted(shown)
    for path in written:
        assert texts(path) == texts(DOCS / "images" / path.name), "run python tools/pictures.py"


def texts(path: Path) -> list[str]:
    """Return the texts in a picture; its lines may differ in the last digit between machines."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text("utf-8"))
