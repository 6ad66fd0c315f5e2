"""Pages opened in the system's Chromium at a given width of the window, with descriptions of their faults.

Every test has the fixture ``browser``. ``browser.faults(path, 390)`` is empty if the page has no fault, and
``browser.look(path, 390)`` returns everything that was measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (1100, 390)
"""Pixels: a window on a desk, and a phone."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LOCAL = ("file:", "data:", "blob:", "about:")
_LEAST_TEXT = 9.0  # pixels: what is smaller cannot be read on a phone
_SETTLE = """
async () => {
  for (const image of document.images) image.loading = 'eager';
  await document.fonts.ready;
  await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}
"""
_MEASURE = """
() => {
  const width = document.documentElement.clientWidth, far = 1.5;
  const found = {clipped: [], scrolling: [], figures: 0, smallest: 99, smallest_text: ''};
  const called = e => {
    const own = e.id ? '#' + e.id : e.classList.length ? '.' + [...e.classList].join('.') : '';
    return e.tagName.toLowerCase() + own + ' “' + (e.textContent || '').trim().replace(/\\s+/g, ' ').slice(0, 40) + '”';
  };
  const shown = e => e.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const overflow = e => getComputedStyle(e).overflowX;
  const inside = (e, test) => { for (let p = e.parentElement; p; p = p.parentElement) if (test(p)) return p; };
  const scrolls = e => ['auto', 'scroll'].includes(overflow(e));
  const tooWide = e => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + far;
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth + far)
    found.clipped.push(`the page is ${page.scrollWidth} pixels wide in a window of ${page.clientWidth}`);
  for (const e of document.body.querySelectorAll('*')) {
    if (!shown(e)) continue;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (e instanceof SVGElement) {
      const svg = e.ownerSVGElement;
      if (!svg) {
        if (box.width >= 40 && box.height >= 40 && e.querySelector('path, line, rect, circle, use, text'))
          found.figures += 1;
      } else if (e.tagName === 'text') {
        const all = svg.getBoundingClientRect();
        if (box.left < all.left - far || box.right > all.right + far
            || box.top < all.top - far || box.bottom > all.bottom + far)
          found.clipped.push(`${called(e)} is cut off at the edge of its figure`);
        const size = parseFloat(getComputedStyle(e).fontSize) * svg.getScreenCTM().a;
        if (size < found.smallest) { found.smallest = size; found.smallest_text = called(e); }
      }
      continue;
    }
    if (e.tagName === 'IMG' || e.tagName === 'CANVAS') {
      if (e.tagName === 'IMG' && e.complete && !e.naturalWidth) found.clipped.push(`${called(e)} has no picture`);
      else if (box.width >= 40 && box.height >= 40) found.figures += 1;
    }
    if (tooWide(e) && scrolls(e)) found.scrolling.push(called(e));
    if (tooWide(e) && ['hidden', 'clip'].includes(overflow(e)) && e !== document.body)
      found.clipped.push(`${called(e)} cuts off ${e.scrollWidth - e.clientWidth} pixels of what it holds`);
    const leaves = box.left < width - far && box.right > width + far || box.left < -far && box.right > far;
    if (leaves && !inside(e, scrolls)) found.clipped.push(`${called(e)} ends at pixel ${Math.round(box.right)}`);
    const texts = [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    const size = parseFloat(getComputedStyle(e).fontSize);
    if (texts && box.width > 1 && size < found.smallest) { found.smallest = size; found.smallest_text = called(e); }
  }
  return found;
}
"""


@dataclass(frozen=True)
class View:
    """What a browser shows of a page.

    Attributes:
        console: errors and warnings of the console, and uncaught errors of scripts.
        requests: addresses outside the file system; all requests to them were refused.
        failed: addresses on the file system that could not be read.
        clipped: elements that are wider than the window or cut off, and that no scrolling shows whole.
        scrolling: elements that have to be scrolled sideways to be seen whole.
        figures: the number of pictures (``svg``, ``img`` and ``canvas`` of at least 40 by 40 pixels).
        smallest: the size of the smallest text, in pixels on the screen.
        smallest_text: the beginning of this text.
        told: the return value of the script that was passed to ``look``.
    """

    console: list[str]
    requests: list[str]
    failed: list[str]
    clipped: list[str]
    scrolling: list[str]
    figures: int
    smallest: float
    smallest_text: str
    told: Any = None

    def faults(self) -> list[str]:
        """Return a description of every fault."""
        found = [*(f"console: {text}" for text in self.console), *(f"asks for {text}" for text in self.requests)]
        found += [*(f"cannot read {text}" for text in self.failed), *(f"clipped: {text}" for text in self.clipped)]
        if self.smallest < _LEAST_TEXT:
            found.append(f"text of {self.smallest:.1f} pixels: {self.smallest_text}")
        return found


class Browser:
    """Chromium without a window. All files open in one page, because a new page for each takes four times as long."""

    def __init__(self, chromium: Any) -> None:
        context = chromium.new_context()
        context.route(lambda url: not url.startswith(_LOCAL), lambda route: route.abort())
        self._console: list[str] = []
        self._requests: list[str] = []
        self._failed: list[str] = []
        self._page = page = context.new_page()
        page.on("console", lambda it: self._console.append(it.text) if it.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._console.append(str(error)))
        page.on("request", lambda it: None if it.url.startswith(_LOCAL) else self._requests.append(it.url))
        page.on("requestfailed", lambda it: self._failed.append(it.url) if it.url.startswith(_LOCAL) else None)

    def views(self, path: Path, widths: Sequence[int] = WIDTHS, script: str | None = None) -> list[View]:
        """Open a file once, and return a view of it at each width.

        Args:
            path: the HTML file.
            widths: the widths of the window, in pixels.
            script: a JavaScript function to call at each width, after the page has loaded and before it is measured.
                Its return value, or that of its promise, becomes ``told``.
        """
        page, notes = self._page, (self._console, self._requests, self._failed)
        page.goto("about:blank")  # so that nothing of the page before is still under way
        for note in notes:
            note.clear()
        found = []
        for i, width in enumerate(widths):
            page.set_viewport_size({"width": width, "height": 900})
            if i == 0:
                page.goto(path.resolve().as_uri(), wait_until="load")
            page.evaluate(_SETTLE)
            told = page.evaluate(script) if script else None
            found.append(View(*map(list, notes), **page.evaluate(_MEASURE), told=told))
        return found

    def look(self, path: Path, width: int, script: str | None = None) -> View:
        """Return the view at one width; the arguments are those of ``views``."""
        return self.views(path, [width], script)[0]

    def faults(self, path: Path, width: int) -> list[str]:
        """Return a description of every fault of a page at this width."""
        return self.look(path, width).faults()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once for each test module; skip the test if Chromium or playwright is not installed."""
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("needs Chromium: none of chromium, chromium-browser, google-chrome is on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'pear-dfl[dev]'")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program)
        yield Browser(chromium)
        chromium.close()
