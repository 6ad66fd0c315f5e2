"""The figures, commands and tables that the page of lessons names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scripts import import_script

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def lessons() -> ModuleType:
    return import_script(ROOT / "lab" / "studies" / "lessons.py")


@pytest.fixture(scope="module")
def page(lessons: ModuleType) -> str:
    return lessons.PAGE.read_text("utf-8")


def test_every_figure_of_the_page_exists_and_every_lesson_has_one(lessons: ModuleType, page: str) -> None:
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    assert sorted(named) == sorted(f"images/lessons-{name}.svg" for name in lessons.LESSONS)
    for figure in named:
        assert "<svg" in (lessons.PAGE.parent / figure).read_text("utf-8"), (
            f"run python lab/studies/lessons.py for {figure}"
        )
    assert {path.name for path in lessons.IMAGES.glob("lessons-*")} == {Path(figure).name for figure in named}


def test_every_command_of_the_page_is_one_of_the_script(lessons: ModuleType, page: str) -> None:
    named = re.findall(r"`python lab/studies/lessons\.py ([^`]+)`", page)
    assert sorted(named) == sorted(lessons.LESSONS)


def test_every_lesson_has_a_table_between_its_marks(lessons: ModuleType, page: str) -> None:
    for name in lessons.LESSONS:
        begin, end = lessons.marks(name)
        text = page.split(begin)[1].split(end)[0]
        assert re.search(
            rf"^\|---.*\n\|.*\d.*\|(.|\n)*`python lab/studies/lessons\.py {name}`, \d+ \w+ \d{{4}}\.", text, re.M
        )
        assert lessons.updated(lessons.updated(page, name, "nothing"), name, text.strip()) == page


def test_an_unknown_lesson_is_refused(
    lessons: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lessons.py", "unit"])
    with pytest.raises(SystemExit):
        lessons.main()
    assert "unknown lessons unit; there are gradients, vertices" in capsys.readouterr().err


def test_directions_are_compared_with_a_slope_that_is_known(lessons: ModuleType) -> None:
    """From two noisy estimates of a slope, the cosine with the slope itself is 1, and across it 0."""
    import torch

    random = torch.Generator().manual_seed(0)
    slope, across = torch.zeros(400, 2), torch.zeros(400, 2)
    slope[:, 0], across[:, 1] = 1.0, 1.0
    halves = slope + torch.randn(2, 400, 2, generator=random)
    assert lessons.cosine(slope, halves) == pytest.approx(1.0, abs=0.1)
    assert lessons.cosine(-slope, halves) == pytest.approx(-1.0, abs=0.1)
    assert lessons.cosine(across, halves) == pytest.approx(0.0, abs=0.1)
