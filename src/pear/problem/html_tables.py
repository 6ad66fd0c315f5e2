"""Small HTML tables that notebooks show for problems and models, without scripts or links."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from pear.wording import summarise_names

if TYPE_CHECKING:
    from pear.problem.model import Model
    from pear.problem.problem import Problem


def html_table(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """Return an HTML table with a title, one row for each fact, and a note below. All text is escaped.

    Args:
        title: the caption of the table.
        facts: the values of the rows, by name. Values that are None or "" are left out.
        note: sentences, one per line.

    Example:
        >>> html_table("Problem", {"rows <": 2, "nothing": None})
        '<table><caption>Problem</caption><tr><th>rows &lt;</th><td>2</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(fact))}</td></tr>"
        for name, fact in facts.items()
        if fact is not None and fact != ""
    )
    below = "".join(f"<p>{escape(line)}</p>" for line in note.splitlines() if line.strip())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>{below}"


def problem_html_facts(problem: Problem) -> dict[str, object]:
    """Return the properties of a problem by name. A property that the problem does not have is None."""
    terms = {"quadratic": problem.Q, "with a smooth term": problem.phi}
    integers = "" if problem.integer is None else f", {int(problem.integer.sum())} of them integer"
    return {
        "sense": problem.sense,
        "variables": f"{problem.n}{integers}",
        "objective": " ".join(term for term, part in terms.items() if part is not None) or "linear",
        "equalities": None if problem.b is None else problem.b.shape[-1],
        "inequalities": None if problem.h is None else problem.h.shape[-1],
        "bounds": ", ".join(name for name in ("lb", "ub") if getattr(problem, name) is not None) or "none",
        "samples": None if problem.batch is None else f"{problem.batch}, with fields of their own",
        "matrices": "sparse" if problem.is_sparse else None,
        "device": None if problem.device.type == "cpu" else problem.device,
    }


def model_html_table(model: Model) -> str:
    """Return the HTML table of a model."""
    own: dict[str, Any] = {
        "names": summarise_names(model.variables),
        "predicted values": summarise_names(model.names),
        "costs": model.cost_map,
        "right-hand sides": model.constraint_map,
        "recourse": model.recourse,
        "known values": model.known_map,
    }
    constant = model.offset if isinstance(model.offset, float) and model.offset else None
    return html_table("Model", {**problem_html_facts(model.problem), **own, "constant": constant}, model.report)
