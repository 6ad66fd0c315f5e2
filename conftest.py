"""Settings that every test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from browser import browser
from built_site import site
from forked_workers import forked_workers

__all__ = ["browser", "forked_workers", "site"]  # fixtures of all tests

torch.set_num_threads(1)  # small systems gain nothing from threads, and one thread makes results repeatable
hypothesis.settings.register_profile("pear", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("pear")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, each file's together.

    Much of their time is waiting, in which the other process works, and at the end there would be nothing to do for it.
    A process that has no tests left takes some from the end of the other's, so that what comes first stays in one
    process, and its fixtures (a Ray cluster, two ranks, a wheel) are made once.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def keep_small_ones_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep sparse inputs sparse, whatever their size and density."""
    monkeypatch.setattr("pear.problem.quadratic_program.MIN_VARIABLES", 1)
    monkeypatch.setattr("pear.problem.quadratic_program.MAX_SHARE", 1.0)


@pytest.fixture
def keep_thread_count() -> Iterator[None]:
    """Restore torch's number of threads, which the tested code sets."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, and a wide terminal without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
