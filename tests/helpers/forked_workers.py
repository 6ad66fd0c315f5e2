"""Worker processes of the laboratory that start at once, for tests of what is done with workers."""

from __future__ import annotations

import multiprocessing
from multiprocessing import popen_forkserver

import pytest

_PRELOADED = [
    *("pear_lab.experiments.protocols", "pear_lab.forecasters.run_study"),
    *("torch._dynamo", "pear.train.compiled.epoch_kernel"),  # imported by the first step of a training
]


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked from a server that has imported what they need, which would take each of them three seconds.

    The server is started by the first test that asks. The tests of commands that are interrupted or killed start their
    workers as users do.
    """
    multiprocessing.set_forkserver_preload(_PRELOADED)
    monkeypatch.setattr("pear_lab.experiments.processes._Process._Popen", staticmethod(popen_forkserver.Popen))
