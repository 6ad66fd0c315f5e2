"""The specification of a run, and the selection of runs from the experiments."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

from pear_lab.data.prices import Gaps
from pear_lab.experiments.catalogue import DEGREES, METHODS, PORTFOLIO_METHODS, TASKS
from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.experiments.table_spec import DEFAULTS

_WORDS = {"data": "", "degree": "degree", "capacity": "capacity", "version": "budget by", "fold": "fold"}
_SYMBOLS = {"noise": "noise", "smoothing": "λ", "injection": "β"}


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run: a training, or a measurement on the weights of a training.

    Attributes:
        experiment: name of the experiment that needs the run; not part of the key, so that experiments share trainings.
        task: a name in ``TASKS``.
        method: a name among the task's methods.
        seed: seed of data, first weights and batches.
        settings: everything else that determines the outcome. In a measurement ``variant`` names what is measured.
        protocol: the ``Protocol`` of the run; None for the task's protocol in ``PROTOCOLS``. It is not part of the key.
    """

    experiment: str
    task: str
    method: str
    seed: int
    settings: dict[str, Any]
    protocol: Any = None

    @cached_property
    def key(self) -> str:
        """The key of the run's record. Equal runs have equal keys, whichever experiment asks for them."""
        text = json.dumps([self.task, self.method, self.seed, self.settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def variant(self) -> str | None:
        """The name of what is measured; None for a training."""
        return self.settings.get("variant")

    def training(self) -> RunSpec:
        """The training whose weights this run measures; a training returns itself."""
        return replace(self, settings={k: v for k, v in self.settings.items() if k != "variant"})

    def __str__(self) -> str:
        what = f"{self.variant}: " if self.variant else ""
        condition = [f"{word} {self.settings[name]}" for name, word in _WORDS.items() if name in self.settings]
        for name, symbol in _SYMBOLS.items():
            if self.settings.get(name, DEFAULTS[name]) != DEFAULTS[name]:
                condition.append(f"{symbol} {self.settings[name]:g}")
        words = [dashed_name(self.task), self.method, *(text.strip() for text in condition), f"seed {self.seed}"]
        return what + ", ".join(words)


@dataclass(frozen=True)
class Selection:
    """The part of the experiments to run.

    Attributes:
        tasks, methods, degrees, seeds: those to run; None for those of each experiment.
        time_cap: seconds that a training may take; None for the cap of its task.
        quick: whether to run a reduced grid on smaller problems, to see that everything works. The settings of its
            records differ from the paper's, so that the two are never mixed up.
        data: prices for the portfolio experiments, as in ``pear_lab.data.load_prices``; None for those of skfolio.
        gaps: what to do if prices are missing, as in ``pear_lab.data.read_prices``.
    """

    tasks: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    degrees: Sequence[int] | None = None
    seeds: Sequence[int] | None = None
    time_cap: float | None = None
    quick: bool = False
    data: str | None = None
    gaps: Gaps = "error"

    def __post_init__(self) -> None:
        methods = tuple(dict.fromkeys((*METHODS, *PORTFOLIO_METHODS)))
        known = {"task": tuple(TASKS), "method": methods, "degree": DEGREES}
        for what, there in known.items():
            for name in getattr(self, f"{what}s") or ():
                check_known(what, name, there)
        if self.time_cap is not None and not self.time_cap > 0:
            raise ExperimentError(f"the time cap must be a positive number of seconds; got {self.time_cap!r}")
        if self.gaps not in get_args(Gaps):
            raise ExperimentError(f"--gaps must be one of {', '.join(get_args(Gaps))}; got {self.gaps!r}")
        if any(seed < 0 for seed in self.seeds or ()):
            raise ExperimentError(f"seeds must be whole numbers of at least 0; got {list(self.seeds or ())}")


def check_known(what: str, name: object, there: Iterable[object]) -> None:
    """Raise ``ExperimentError`` if a name is unknown; the message lists the known names."""
    known = list(there)
    if name in known:
        return
    shown = [dashed_name(str(one)) for one in known]
    close = difflib.get_close_matches(dashed_name(str(name)), shown, n=1)
    suggestion = f"; did you mean {close[0]}?" if close else ""
    raise ExperimentError(f"there is no {what} {dashed_name(str(name))!r}; there is {', '.join(shown)}{suggestion}")


def dashed_name(name: str) -> str:
    """Return a name as the command line spells it, with dashes."""
    return name.replace("_", "-")
