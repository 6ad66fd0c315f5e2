"""The checks in the browser: each fault is found on a page that has it, and no fault on a page without any."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import WIDTHS, Browser
from browser import browser as fixture

GOOD = """
<h1>Fine</h1><p>A paragraph that wraps at any width.</p>
<div style="overflow-x: auto"><pre style="width: 2000px">a long line of code</pre></div>
<svg viewBox="0 0 100 50" style="width: 300px"><rect width="100" height="50"/><text x="10" y="20">in</text></svg>
<details><summary>more</summary><div style="width: 3000px">hidden</div></details>
"""


def page(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(f'<!DOCTYPE html><link rel="icon" href="data:,"><title>t</title><body>{body}', encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_a_good_page_has_no_fault(browser: Browser, tmp_path: Path, width: int) -> None:
    view = browser.look(page(tmp_path, GOOD), width, "() => document.querySelector('h1').textContent")
    assert view.faults() == []
    assert (view.figures, view.told) == (1, "Fine")
    assert len(view.scrolling) == 1  # reachable, and said


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<script>console.error('oh')</script>", "console: oh"),
        ("<script>console.warn('hm')</script>", "console: hm"),
        ("<script>throw new Error('no')</script>", "console: no"),
        ("<img src='https://example.org/a.png'>", "asks for https://example.org/a.png"),
        ("<script>fetch('http://example.org/b').catch(() => 0)</script>", "asks for http://example.org/b"),
        ("<img src='missing.png'>", "missing.png"),
        ("<div style='width: 1500px'>wide</div>", "clipped: the page is 15"),
        ("<div style='width: 1500px'>wide</div>", "ends at pixel 15"),
        ("<div style='overflow: hidden'><div style='width: 1500px'>cut</div></div>", "cuts off"),
        ("<div style='overflow: clip'><div style='width: 1500px'>cut</div></div>", "cuts off"),
        ("<svg viewBox='0 0 100 50' style='width: 90px'><text x='80' y='20'>too long</text></svg>", "cut off at"),
        ("<p style='font-size: 5px'>tiny</p>", "text of 5.0 pixels"),
        ("<svg viewBox='0 0 1000 50' style='width: 300px'><text x='10' y='20'>t</text></svg>", "text of 4.8 pixels"),
    ],
)
def test_every_fault_is_found(browser: Browser, tmp_path: Path, body: str, fault: str) -> None:
    found = browser.faults(page(tmp_path, body), 1100)
    assert any(fault in one for one in found), found


def test_without_chromium_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    opened = fixture.__wrapped__()
    with pytest.raises(pytest.skip.Exception, match="needs Chromium: none of chromium"):
        next(opened)
