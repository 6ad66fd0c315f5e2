"""Small portfolios on prices: returns without structure, a forecaster, a file of prices, runs of the experiments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run
from lab_files import working_days, write_prices
from torch import Tensor
from typer.testing import Result

from pear_lab.experiments.catalogue import TASKS
from pear_lab.tasks.market import Forecaster

WINDOW, AHEAD, ASSETS = 12, 4, 5


def history(days: int, assets: int = ASSETS, seed: int = 0) -> Tensor:
    """Draw returns (days, assets) without any structure."""
    generator = torch.Generator().manual_seed(seed)
    return 0.01 * torch.randn(days, assets, generator=generator, dtype=torch.float64)


def small(assets: int = ASSETS, seed: int = 0) -> Forecaster:
    return Forecaster(assets, WINDOW, AHEAD, average=5, generator=torch.Generator().manual_seed(seed))


def batch(count: int = 6, assets: int = ASSETS) -> tuple[Tensor, Tensor]:
    days = history(count * 20, assets).unfold(0, WINDOW + AHEAD, 20)[:count]
    return days[:, :, :WINDOW], days


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Write a file with the prices of three assets over two and a half years; return its path."""
    values = 100 * np.cumprod(1 + history(640, 3, seed=4).numpy(), 0)
    rows = [f"{day},{','.join(f'{v:.6f}' for v in row)}" for day, row in zip(working_days("2020-01-01", 640), values, strict=True)]  # fmt: skip  # noqa: E501
    return write_prices(tmp_path / "prices.csv", rows, "Date,<script>alert('x')</script>,Y|[y](javascript:alert(1)),Z")


@pytest.fixture
def tiny(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = TASKS["portfolio"]
    quick = {**entry.quick, "stride": 8, "max_epochs": 2, "last_days": 620}
    problem = {**entry.problem, "window": WINDOW, "ahead": AHEAD}
    monkeypatch.setitem(TASKS, "portfolio", dataclasses.replace(entry, problem=problem, quick=quick))


def reproduce(*arguments: object) -> Result:
    return run("reproduce", *arguments, "--jobs", "1", "--out", "out")
