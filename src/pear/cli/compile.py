"""``pear compile``: compiles all solvers at once, before they are called."""

from __future__ import annotations

from pathlib import Path

from pear.cli.console import print_plain


def compile_command() -> None:
    """Compile all solvers now. Otherwise, each of them is compiled when it is first called."""
    from pear.solvers.active_set import batch_kernel
    from pear.train.compiled.compile_all import compile_all

    total, kept = 0.0, batch_kernel.run_batch_kernel.stats.cache_path
    for part, seconds, was_cached in compile_all():
        if not was_cached:
            print_plain(f"{part}: compiled, {seconds:.1f} s")
            total += seconds
    where = "no directory can be written to; set NUMBA_CACHE_DIR to one that can" if kept is None else str(Path(kept))
    print_plain(
        f"{total:.1f} s in all; kept in {where}"
        if total
        else f"Nothing to do: everything is compiled already, in {where}"
    )
