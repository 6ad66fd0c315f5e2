"""What is kept of a run that has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """One finished or failed run, as the database holds it and the report reads it.

    Every ratio in ``metrics`` is a share, not per cent: regrets, gaps, returns and the active-set change rate; 0.0038
    is 0.38 %. Whoever prints per cent multiplies by 100.

    Attributes:
        key: made of task, method, seed and settings; see ``pear.experiments.specs.Run``.
        experiment: the one that first asked for it.
        task: of ``pear.experiments.catalogue.TASKS``.
        method: of ``pear.experiments.catalogue.METHODS``.
        seed: of data, first weights and batches.
        settings: all else that fixes the outcome; ``variant`` names what was measured where nothing was trained.
        status: "done" or "failed"; reason: why it failed.
        metrics: on the test samples, by name.
        timings: seconds, and the number of epochs.
        history: [epoch, seconds, loss, validation regret] of every check.
        weights: path of the trained weights, relative to the folder of the database.
        versions: of Python and the packages; machine: in words; created: ISO time.
    """

    key: str
    experiment: str
    task: str
    method: str
    seed: int
    settings: dict[str, Any]
    status: str
    reason: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    history: list[list[float]] = field(default_factory=list)
    weights: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    created: str = ""
