"""The table of the structures of programs that the gradient benchmark measures.

A structure is a kind of random program ``min ½ zᵀQz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``. The functions
that draw the programs are in ``program_draws``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pear.errors import ProblemError
from pear_lab.benchmarks import program_draws as draws
from pear_lab.benchmarks.program_draws import ProgramDraw


@dataclass(frozen=True)
class Structure:
    """A structure of programs, as a row of ``STRUCTURES``.

    Attributes:
        name: the name on the command line.
        label: the description, with ``{n}`` in place of the number of variables.
        draw: a function of a random generator, a number of variables and a number of samples. It draws programs.
        size: the default number of variables.
        batches: the default numbers of samples on a GPU. Those up to 512 are the default on a CPU.
        any_size: whether other numbers of variables are possible.
        warm: whether warm starts are measured as well.
    """

    name: str
    label: str
    draw: Callable[[np.random.Generator, int, int], ProgramDraw]
    size: int
    batches: tuple[int, ...]
    any_size: bool = True
    warm: bool = False


STRUCTURES: tuple[Structure, ...] = (
    Structure("portfolio", "{n:,} assets", draws.draw_portfolio_programs, 100, (64, 512, 4096), warm=True),
    Structure("box", "box QP of {n:,} variables", draws.draw_box_programs, 100, (64, 512, 1024)),
    Structure("rows", f"QP of {{n:,}} variables with {draws.SHARED_ROWS} rows", draws.draw_shared_row_programs,
              100, (64, 512, 1024)),
    Structure("own-rows", f"QP of {{n:,}} variables with {draws.OWN_ROWS} rows of its own", draws.draw_own_row_programs,
              60, (64, 512, 1024)),
    Structure("knapsack", f"knapsack of {{n:,}} items, {draws.KNAPSACK_ROWS} rows", draws.draw_knapsack_programs,
              100, (64, 512, 4096)),
    Structure("path-5", "5×5 grid of {n:,} edges", partial(draws.draw_path_programs, 5), 40, (64, 512, 4096), False),
    Structure("path-12", "12×12 grid of {n:,} edges", partial(draws.draw_path_programs, 12),
              264, (64, 512, 1024), False),
    Structure("sectors", f"{{n:,}} assets with {draws.SECTORS} sector limits", draws.draw_sector_programs,
              100, (64, 512, 2048), False),
    Structure("assignment", "assignment of {n:,} pairs", draws.draw_assignment_programs,
              draws.WORKERS**2, (64, 512, 2048), False),
    Structure("transport", "transport of {n:,} routes", draws.draw_transport_programs,
              draws.ORIGINS * draws.DESTINATIONS, (64, 512, 2048), False),
    Structure("dense-300", "dense QP of {n:,} variables with 100 rows", partial(draws.draw_dense_programs, 100),
              300, (64, 1024), False),
    Structure("dense-100", "dense QP of {n:,} variables with 30 rows", partial(draws.draw_dense_programs, 30),
              100, (64, 512, 2048), False),
    Structure("battery", "battery of {n:,} variables", draws.draw_battery_programs,
              3 * draws.HOURS + 1, (64, 512, 2048), False),
    Structure("turnover", "turnover of {n:,} variables", draws.draw_turnover_programs, 120, (64, 512, 2048), False),
    Structure("polytope", f"polytope of {{n:,}} variables with {draws.POLYTOPE_ROWS} rows",
              draws.draw_polytope_programs, 40, (64, 512, 2048)),
)  # fmt: skip


def choose_structures(names: Sequence[str]) -> list[Structure]:
    """Return the structures of the given names, or all structures if "all" is one of the names.

    Raises:
        ProblemError: a name is not in the table, or there is no name.

    Example:
        >>> [structure.size for structure in choose_structures(["box", "path-5"])]
        [100, 40]
    """
    known = {structure.name: structure for structure in STRUCTURES}
    if "all" in names:
        return list(STRUCTURES)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {close[0]}?" if close else ""
            raise ProblemError(f"--structures must be some of {', '.join(known)}, or all; got {name!r}{guess}")
    if not names:
        raise ProblemError(f"--structures must be some of {', '.join(known)}, or all; got none")
    return [known[name] for name in dict.fromkeys(names)]
