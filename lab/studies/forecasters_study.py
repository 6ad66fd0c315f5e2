"""PEAR beside forecasters that users already have: the money that their decisions lose, on real and synthetic tasks.

    PEAR_DATA=… python lab/studies/forecasters_study.py TASK… [--out FILE] [--quick] [--seeds K] [--jobs J]

The command trains every forecaster on every split of the tasks. It writes one line of JSON for each training to FILE,
and the tables to the same name with the ending .md. The same command continues a stopped study. --again repeats
trainings that have a result, and --forecasters selects some forecasters. Tasks are families (pjm, irish-battery,
irish-knapsack, portfolio, energy, building, synthetic-battery, spo-paths, paper), single cases (pjm-time,
spo-1000-8-0.5, …), or "all". Without a task, nothing is trained, and the tables are made from the results in FILE.
Trainings whose data file or package is missing are left out, with a message. Only the library and scikit-learn are
required.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
for _name in THREADS:  # before anything that reads them is imported; worker processes inherit them
    os.environ.setdefault(_name, "1")

from pear.errors import PearError  # noqa: E402
from pear_lab.forecasters.case_table import FAMILIES, find_table_cases  # noqa: E402
from pear_lab.forecasters.forecaster_table import FORECASTERS, find_table_forecasters  # noqa: E402
from pear_lab.forecasters.run_study import run_study  # noqa: E402
from pear_lab.forecasters.study_runs import expand_study_runs, read_study_runs  # noqa: E402
from pear_lab.forecasters.study_tables import study_tables_markdown  # noqa: E402


def parse(words: list[str] | None) -> argparse.Namespace:
    """Return the parsed arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"all, {', '.join(FAMILIES)}, or a case of them")
    parser.add_argument("--out", type=Path, default=Path("pear-output/forecasters.jsonl"), help="the file of results")
    parser.add_argument("--quick", action="store_true", help="few rows, one split, a moment of training")
    parser.add_argument("--seeds", type=int, help="number of seeds; each task has its own where left out")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one core each")
    parser.add_argument("--again", action="store_true", help="train anew what has a result; the later one counts")
    parser.add_argument("--forecasters", default="", help=f"some of {','.join(FORECASTERS)}; all where left out")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Do the missing trainings, write the tables, and return the exit code."""
    given = parse(words)
    try:
        forecasters = find_table_forecasters([word for word in given.forecasters.split(",") if word])
        cases = find_table_cases(FAMILIES if "all" in given.tasks else given.tasks, given.quick)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        runs = expand_study_runs(cases, forecasters, given.seeds, given.quick)
        run_study(runs, given.out, given.jobs, lambda line: print(line, file=sys.stderr, flush=True), given.again)
        text = study_tables_markdown(read_study_runs(given.out), given.quick)
    except PearError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Stopped; what has ended is kept in {given.out}.", file=sys.stderr)
        return 130
    given.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
