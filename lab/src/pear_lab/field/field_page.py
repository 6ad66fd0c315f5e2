"""The page of the comparison: every number and every sentence about numbers comes from the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pear.pages.page import PageSection
from pear_lab.experiments.database import read_records
from pear_lab.experiments.experiment_errors import DatabaseError
from pear_lab.field import field_sections as sections
from pear_lab.field.field_methods import field_methods
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.field_words import summary_sentences
from pear_lab.field.left_out import left_out_section
from pear_lab.field.rank_figure import save_rank_diagram
from pear_lab.field.task_results import TaskResults, read_results
from pear_lab.report.report_files import machines_section, section_markdown
from pear_lab.report.table_cells import read

FIGURE = "ranks.svg"
COMMANDS = """\
```
pear reproduce field --out FOLDER --seeds {seeds} \\
    --tasks {tasks} \\
    --methods {methods}
pear reproduce --merge FOLDER --out docs/results/field
python lab/studies/field_page.py   # writes this page from docs/results/field/results.sqlite
```

A comparison that was stopped goes on by the same command. Without --tasks, --methods and --seeds everything is run."""


def field_page(database: Path, figure: Path | None = None, link: str = FIGURE) -> str:
    """Write the page in Markdown.

    Args:
        database: the runs.
        figure: where the diagram of ranks is saved; nowhere if left out.
        link: how the page names that file.

    Raises:
        DatabaseError: the database holds no finished run of the comparison.
    """
    found = read_results(read_records(database))
    if not found:
        raise DatabaseError(f"{database} holds no task with a finished run of the comparison; run pear reproduce field")
    ranks = FieldRanks.of(found)
    parts = ["# The field on one page", sections.INTRODUCTION, _commands(found), "## In short"]
    parts += ["\n".join(f"- {sentence}" for sentence in summary_sentences(found, ranks))]
    parts += [section_markdown(sections.protocol_section(found)), section_markdown(sections.ranks_section(ranks))]
    if ranks.found is not None:
        if figure is not None:
            save_rank_diagram(ranks.found, {name: row.title for name, row in field_methods().items()}, figure)
        parts.append(f"![Mean ranks with the critical difference]({link})")
    parts += _markdown([sections.task_section(one) for one in found])
    parts += _markdown([sections.speed_section(found), sections.settings_section(found)])
    if (rest := left_out_section(found)) is not None:
        parts.append(section_markdown(rest))
    parts += _markdown([sections.failures_section(found), machines_section(read(database))])
    return "\n\n".join(parts) + "\n"


def _commands(found: Sequence[TaskResults]) -> str:
    """Return the commands that make the database and the page, with the tasks, methods and seeds that are there."""
    seeds = sorted({seed for one in found for seed in one.seeds})
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return COMMANDS.format(
        seeds=f"{seeds[0]}-{seeds[-1]}" if whole and len(seeds) > 1 else ",".join(map(str, seeds)),
        tasks=",".join(one.task.name for one in found),
        methods=",".join(dict.fromkeys(name for one in found for name in one.done)),
    )


def _markdown(found: Sequence[PageSection]) -> list[str]:
    return [section_markdown(section) for section in found]


__all__ = ["FIGURE", "TaskResults", "field_page"]
