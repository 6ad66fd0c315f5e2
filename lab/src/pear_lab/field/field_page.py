"""The page of the comparison of all methods.

All of its numbers, and sentences on numbers, are made from the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pear.pages.page import PageSection
from pear_lab.experiments.database import read_records
from pear_lab.experiments.experiment_errors import DatabaseError
from pear_lab.field import field_sections as sections
from pear_lab.field.field_methods import field_methods
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.field_words import field_summary_words
from pear_lab.field.left_out import left_out_section
from pear_lab.field.rank_figure import save_rank_figure
from pear_lab.field.task_results import TaskResults, read_task_results
from pear_lab.report.report_files import machines_section, report_section_markdown
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
    """Return the page of the comparison in Markdown.

    Args:
        database: the file of the runs.
        figure: the file to which the diagram of ranks is saved; None saves none.
        link: the address of that file in the page.

    Raises:
        DatabaseError: the database has no task with a finished run of the comparison.
    """
    found = read_task_results(read_records(database))
    if not found:
        raise DatabaseError(f"{database} holds no task with a finished run of the comparison; run pear reproduce field")
    ranks = FieldRanks.of(found)
    parts = ["# The field on one page", sections.INTRODUCTION, _field_page_commands(found), "## In short"]
    parts += ["\n".join(f"- {sentence}" for sentence in field_summary_words(found, ranks))]
    parts += [
        report_section_markdown(sections.field_protocol_section(found)),
        report_section_markdown(sections.field_ranks_section(ranks)),
    ]
    if ranks.found is not None:
        if figure is not None:
            save_rank_figure(ranks.found, {name: row.title for name, row in field_methods().items()}, figure)
        parts.append(f"![Mean ranks with the critical difference]({link})")
    parts += _field_page_markdown([sections.field_task_section(one) for one in found])
    parts += _field_page_markdown([sections.field_speed_section(found), sections.field_settings_section(found)])
    if (rest := left_out_section(found)) is not None:
        parts.append(report_section_markdown(rest))
    parts += _field_page_markdown([sections.field_failures_section(found), machines_section(read(database))])
    return "\n\n".join(parts) + "\n"


def _field_page_commands(found: Sequence[TaskResults]) -> str:
    """Return the shell commands that make the database and the page for the tasks, methods and seeds of the results."""
    seeds = sorted({seed for one in found for seed in one.seeds})
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return COMMANDS.format(
        seeds=f"{seeds[0]}-{seeds[-1]}" if whole and len(seeds) > 1 else ",".join(map(str, seeds)),
        tasks=",".join(one.task.name for one in found),
        methods=",".join(dict.fromkeys(name for one in found for name in one.done)),
    )


def _field_page_markdown(found: Sequence[PageSection]) -> list[str]:
    """Return each section of the page as a text in Markdown."""
    return [report_section_markdown(section) for section in found]
