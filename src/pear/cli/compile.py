"""``pear compile``: compile everything now, so that no later call has to wait for it."""

from __future__ import annotations

from pathlib import Path

from pear.cli.console import out


def compile_now() -> None:
    """Compile the solvers ahead; without this, each is compiled when it is first called."""
    from pear.solvers.active_set import kernels
    from pear.train.compiled.ahead import compile_all

    total, kept = 0.0, kernels.run.stats.cache_path
    for part, seconds, was_cached in compile_all():
        if not was_cached:
            out.print(f"{part}: compiled, {seconds:.1f} s", highlight=False)
            total += seconds
    where = "no directory can be written to; set NUMBA_CACHE_DIR to one that can" if kept is None else str(Path(kept))
    if total == 0.0:
        out.print(f"Nothing to do: everything is compiled already, in {where}", highlight=False, soft_wrap=True)
    else:
        out.print(f"{total:.1f} s in all; kept in {where}", highlight=False, soft_wrap=True)
