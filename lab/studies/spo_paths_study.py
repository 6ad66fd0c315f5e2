"""The experiment of Elmachtoub & Grigas 2022 on paths, repeated and compared with the published replications.

    PEAR_DATA=… python lab/studies/spo_paths_study.py [--sizes 1000] [--degrees 1,2,4,6,8] [--noises 0,0.5]
        [--replications 50] [--jobs J] [--out FILE]

In every replication, SPO+ and least squares are fitted with ten lasso penalties. The command writes one line of JSON
for each replication to FILE, and the table to the same name with the ending .md. The same command continues a stopped
study. If $PEAR_DATA does not have the file of the published replications, the table has our numbers only.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(_name, "1")

from pear.errors import DataError, PearError  # noqa: E402
from pear_lab.data.path_regrets import PathCell, load_path_replications  # noqa: E402
from pear_lab.forecasters.json_lines import drop_partial_json_line  # noqa: E402
from pear_lab.forecasters.polynomial_cases import SPO_DEGREES, SPO_NOISES, SPO_SIZES  # noqa: E402
from pear_lab.forecasters.spo_protocol import (  # noqa: E402
    SpoProtocolKey,
    read_spo_protocol_results,
    run_missing_spo_protocol,
    spo_protocol_table,
)


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _words(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


def parse(words: list[str] | None) -> argparse.Namespace:
    """Return the parsed arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default="1000", help=f"training samples; theirs: {_words(SPO_SIZES)}")
    parser.add_argument("--degrees", type=_numbers, default=_words(SPO_DEGREES), help="degrees of the polynomial")
    parser.add_argument("--noises", type=_numbers, default=_words(SPO_NOISES), help="half-widths of the noise")
    parser.add_argument("--replications", type=int, default=50, help="replications of each cell")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one core each")
    parser.add_argument("--out", type=Path, default=Path("pear-output/spo-paths.jsonl"), help="the file of results")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Do the missing replications, seed by seed, write the table, and return the exit code."""
    given = parse(words)
    cells = [PathCell(int(n), int(d), w) for n in given.sizes for w in given.noises for d in given.degrees]
    keys = [SpoProtocolKey(cell, seed) for seed in range(given.replications) for cell in cells]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    drop_partial_json_line(given.out)
    try:
        with ProcessPoolExecutor(given.jobs) as pool:
            for result in run_missing_spo_protocol(keys, given.out, pool.map if given.jobs > 1 else map):
                print(f"{result.key}: {result.regret}, {result.seconds:.1f} s", file=sys.stderr, flush=True)
        found = read_spo_protocol_results(given.out)
    except PearError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Stopped; what has ended is kept in {given.out}.", file=sys.stderr)
        return 130
    try:
        published = load_path_replications()
    except DataError as error:
        print(f"Published numbers are left out: {error}", file=sys.stderr)
        published = {}
    text = spo_protocol_table(found.values(), published)
    given.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
