"""Worker processes of the laboratory that start at once, for tests of code that uses workers."""

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
    """Fork workers from a server that has already imported what they need.

    Otherwise the imports would take each worker three seconds. The first test with this fixture starts the server.
    Tests of interrupted or killed commands start their workers as users do, without this fixture.
    """
    multiprocessing.set_forkserver_preload(_PRELOADED)
    monkeypatch.setattr("pear_lab.experiments.processes._Process._Popen", staticmethod(popen_forkserver.Popen))
