"""The display of a training's progress: a bar and a final line if rich is installed, otherwise log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pear.clock import read_clock
from pear.train.history import History, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

logger = logging.getLogger("pear")

SECONDS_BETWEEN_LINES = 30.0
"""The seconds between two lines of progress in a file or a pipe, where a bar cannot be redrawn."""


@contextmanager
def display_progress(verbose: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Return a context manager that yields a progress callback for ``fit``, or None if ``verbose`` is false."""
    if not verbose:
        yield None
    elif find_spec("rich") is None:
        yield _log_progress
    else:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        with Bar(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task("training", total=None)
            print_line = progress_line_printer(bar)

            def show(now: Progress) -> None:
                """Update the bar."""
                bar.update(task, total=now.max_epochs, completed=now.epoch, description=_progress_line(now))
                print_line(_progress_line(now))

            yield show


def progress_line_printer(bar: Bar) -> Callable[[str], None]:
    """Return a function that prints lines of progress in a file or a pipe, where the bar of a terminal does not show.

    The function prints a line every ``SECONDS_BETWEEN_LINES`` at most, and nothing in a terminal.
    """
    printed = read_clock()

    def print_line(line: str) -> None:
        """Print the line if the last one is long enough ago."""
        nonlocal printed
        if not bar.console.is_terminal and read_clock() - printed >= SECONDS_BETWEEN_LINES:
            printed = read_clock()
            bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    return print_line


def display_choice(verbose: bool, history: History) -> None:
    """Print the sentence on which training won (``History.choice``) below the bar, if ``verbose`` is true.

    Without rich nothing is printed, because the log holds the sentence.
    """
    if verbose and history.choice and find_spec("rich") is not None:
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(f"{history.choice}."), soft_wrap=True)


def _progress_line(now: Progress) -> str:
    """Return the progress as one line of text."""
    return f"epoch {now.epoch}: loss {now.loss:.4g}, validation {now.metric:.4g}, best {now.best:.4g}"


def _log_progress(now: Progress) -> None:
    """Log the progress in one line."""
    logger.info(_progress_line(now))
