"""Mutation testing: the code is changed a little, to see whether a test fails. ``make mutants`` runs it.

A mutant is one change of the code. One process imports everything and collects the tests once. For each test, a forked
child runs the test and notes the lines that it reaches. Then, for each mutant, a forked child exchanges the code of the
changed function, and runs only the tests that reach the change, until one fails. Code that runs at import (constants,
fields of dataclasses) is changed in a new process instead. A mutant is caught if a test fails or runs far over its
time; otherwise it survives. ``tools/survivors.md`` has judgements of survivors. Those without one are printed.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import pytest  # noqa: E402
from _pytest.runner import runtestprotocol  # noqa: E402

from mutations import Mutant, exchange, mutants, mutated  # noqa: E402

SOURCE, OUTPUT, JUDGEMENTS = ROOT / "src/pear", ROOT / "build/mutants", ROOT / "tools/survivors.md"
PACKAGES = ("optimality", "sensitivity", "decisions", "losses")
LEFT_OUT = {"optimality/rule.py"}  # compiled into cached kernels; its own test loosens each constant
NO_PART = ("repository", "cli", "tasks", "train", "engines", "boosting", "evaluation", "diagnosis")  # folders of tests/
SLOW = 3.0  # seconds of CPU time, traced, above which a test takes no part
VARIANTS = 12  # of a parametrised test that take part, spread over all of them
PYTEST = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestCollectionWarning"]

Job = tuple[Any, Callable[[], Any]]
Tests = dict[str, dict[str, Any]]
"""For each test, by node id: its seconds, and the lines that it reaches, by file."""


def forked(jobs: Iterable[Job], workers: int) -> Iterator[tuple[Any, Any]]:
    """Run each job in a forked child. Yield its name and its result, or the signal that ended the child."""
    running: dict[int, tuple[Any, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        queue = iter(jobs)
        for number in range(sys.maxsize):
            job = next(queue, None)
            if job is not None:
                answer = Path(folder) / str(number)
                pid = os.fork()
                if pid == 0:
                    _child(job[1], answer)
                running[pid] = job[0], answer
            if not running:
                return
            if job is None or len(running) >= workers:
                pid, code = os.wait()
                if pid in running:
                    name, answer = running.pop(pid)
                    yield name, json.loads(answer.read_text()) if answer.exists() else {"signal": os.WTERMSIG(code)}


def _child(function: Callable[[], Any], answer: Path) -> None:
    """Call ``function`` without output, write its result to ``answer``, and exit without the parent's exit handlers."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        answer.write_text(json.dumps(function()))
    finally:
        os._exit(0)


def limit(seconds: float) -> None:
    """End this process after ``seconds`` of processor time, or after ten times as many seconds of wall-clock time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test with its fixtures, and return whether it passes.

    ``following`` is the test that pytest runs next; pytest keeps the fixtures that both share. None ends all fixtures.
    """
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def traced(item: pytest.Item) -> dict[str, Any]:
    """Run a test alone; return its seconds, whether it passes, and the lines of ``PACKAGES`` that it reaches."""
    reached: dict[str, set[int]] = defaultdict(set)
    prefix = tuple(f"{SOURCE}/{package}/" for package in PACKAGES)

    def line(frame: types.FrameType, event: str, _: Any) -> Any:
        reached[frame.f_code.co_filename].add(frame.f_lineno)
        return line

    def call(frame: types.FrameType, event: str, _: Any) -> Any:
        return line(frame, event, _) if frame.f_code.co_filename.startswith(prefix) else None

    limit(SLOW)
    began = time.process_time()
    threading.settrace(call)
    sys.settrace(call)
    good = passes(item, None)
    sys.settrace(None)
    lines = {str(Path(name).relative_to(SOURCE)): sorted(numbers) for name, numbers in reached.items()}
    return {"seconds": round(time.process_time() - began, 3), "passes": good, "lines": lines}


def alone(order: Path) -> None:
    """Run tests with one source file changed at its import; ``order`` is the file that names both."""
    task = json.loads(order.read_text())
    path, real = SOURCE / task["file"], SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> types.CodeType | None:
        if Path(self.path) != path:
            return real(self, name)
        return compile(mutated(path, task["index"]), str(path), "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    failed = pytest.main([*PYTEST, "-x", *task["tests"]]) != 0
    Path(task["answer"]).write_text(json.dumps({"by": "a fresh process" if failed else None}))


class Runner:
    """A pytest plugin that runs the mutants instead of the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.items: dict[str, pytest.Item] = {}
        self.live: dict[tuple[str, str, int], list[types.FunctionType]] = defaultdict(list)
        self.killers: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find the lines that each test reaches, then run the mutants."""
        from pear.train.compiled.compile_all import PARTS

        PARTS["the active-set method"]()  # loads the compiled code once for every child
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self.items = {item.nodeid: item for item in thinned(session.items)}
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                code = thing.__code__
                self.live[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper) and str(thing.__module__).startswith("pear"):
                thing.cache_clear()
        gc.collect()
        gc.freeze()
        tests = self.trace()
        self.run(tests)
        return True

    def trace(self) -> Tests:
        """Return the seconds and lines of every passing test, from an earlier run if package and test are unchanged."""
        store = OUTPUT / "lines.json"
        helpers = (ROOT / "tests/helpers").glob("*.py")
        shared = digest([*SOURCE.rglob("*.py"), *helpers])
        old = json.loads(store.read_text()) if store.exists() else {}

        @functools.cache
        def state(file: str) -> str:
            return shared + digest([ROOT / file])

        known = {
            name: old[name] for name in self.items if name in old and old[name]["state"] == state(name.split("::")[0])
        }
        rest = [name for name in self.items if name not in known]
        jobs = ((name, functools.partial(traced, self.items[name])) for name in rest)
        for done, (name, answer) in enumerate(forked(jobs, self.options.workers), 1):
            known[name] = {"passes": False, "seconds": SLOW, "lines": {}, "state": state(name.split("::")[0])} | answer
            print(f"\rtests traced: {done} of {len(rest)}", end="", flush=True)
            if done % 25 == 0:
                save(store, json.dumps(old | known))
        print()
        save(store, json.dumps(known))
        failing = [name for name, test in known.items() if not test["passes"] and "signal" not in test]
        slow = [name for name, test in known.items() if "signal" in test]
        print(f"{len(known)} tests, {len(slow)} too slow to take part, {len(failing)} fail alone: {failing[:5]}")
        return {name: test for name, test in known.items() if test["passes"]}

    def run(self, tests: Tests) -> None:
        """Run the mutants whose outcome is unknown or out of date, and store each outcome at once."""
        wanted, known, judged = chosen(self.options), outcomes(), judgements()
        testing = digest((ROOT / "tests").rglob("*.py"))
        sources = {file: digest([SOURCE / file]) for file in {m.file for m in wanted}}
        todo = []
        for mutant in wanted:
            record = known.get(mutant.key, {})
            same = record.get("source") == sources[mutant.file]
            open_still = same and record["by"] is None and mutant.key not in judged
            if not same or (open_still and record["tests"] != testing):
                todo.append(mutant)
        began = time.perf_counter()
        with (OUTPUT / "outcomes.jsonl").open("a") as file:
            for done, (mutant, answer) in enumerate(forked(self.jobs(todo, tests), self.options.workers), 1):
                if "signal" in answer:
                    late = answer["signal"] in (signal.SIGPROF, signal.SIGALRM)
                    answer = {"by": "time limit" if late else f"signal {answer['signal']}"}
                elif answer["by"] in self.items:
                    self.killers[mutant.file, mutant.function][answer["by"]] += 1
                record = {"key": mutant.key, "source": sources[mutant.file], "tests": testing, **answer}
                file.write(json.dumps(record) + "\n")
                file.flush()
                if answer["by"] is None:
                    print(f"\r  survives: {mutant.file}: {mutant.function}: {mutant.change}")
                spent = time.perf_counter() - began
                print(f"\rmutants: {done} of {len(todo)}, {spent / 60:.1f} minutes", end="", flush=True)
        print()

    def jobs(self, todo: list[Mutant], tests: Tests) -> Iterator[Job]:
        """Yield a job for each mutant.

        Its tests are ordered when its job begins, so that the outcomes of earlier mutants are known.
        """
        for mutant in todo:
            order = self.order(mutant, tests)
            if mutant.outer is None:
                yield mutant, functools.partial(self.in_fresh_process, mutant, order)
            else:
                yield mutant, functools.partial(self.in_child, mutant, order, tests)

    def order(self, mutant: Mutant, tests: Tests) -> list[str]:
        """Return the tests that reach the change, as many as the time budget allows.

        A change of a default value, or outside functions, is reached by the tests of every file that runs or names it.
        Tests that caught a mutant of the same function come first, then fast tests that reach little else.
        """
        first, last = mutant.lines
        lines = {name: test["lines"].get(mutant.file, []) for name, test in tests.items()}
        near: Counter[str] = Counter()
        if mutant.outer is None or mutant.default:  # it is read without reaching a line: by any test of a file near it
            near.update(name.split("::")[0] for name in tests if lines[name])
            names = mutant.function.split(".")[0]
            near.update(file for file in {name.split("::")[0] for name in tests} if names in (ROOT / file).read_text())
            reach = [name for name in tests if near[name.split("::")[0]]]
        else:
            reach = [name for name in tests if any(first <= line <= last for line in lines[name])]
        killers, turns = self.killers[mutant.file, mutant.function], Counter[str]()
        weight = {}
        for name in sorted(reach, key=lambda name: tests[name]["seconds"]):
            function = name.split("[")[0]
            turns[function] += 1
            weight[name] = tests[name]["seconds"] * turns[function] * sum(map(len, tests[name]["lines"].values()))
        kept: list[str] = []
        spent = 0.0
        budget = self.options.budget * (3 if near else 1)
        for name in sorted(reach, key=lambda name: (-killers[name], -near[name.split("::")[0]], weight[name])):
            spent += tests[name]["seconds"]
            if spent > budget and len(kept) >= 3:
                break
            kept.append(name)
        return kept

    def in_child(self, mutant: Mutant, order: list[str], tests: Tests) -> dict[str, Any]:
        """Exchange the code in this forked child, run the tests until one fails, and return the outcome."""
        if not order:
            return {"by": None, "ran": 0}
        exchange(mutant, SOURCE, self.live)
        items = [self.items[name] for name in order]
        for item, following in zip(items, [*items[1:], None], strict=True):
            limit(5 + 4 * tests[item.nodeid]["seconds"])
            if not passes(item, following):
                return {"by": item.nodeid, "ran": order.index(item.nodeid) + 1}
        return {"by": None, "ran": len(order)}

    def in_fresh_process(self, mutant: Mutant, order: list[str]) -> dict[str, Any]:
        """Run the tests of a mutant in a new process by ``alone``, and return the outcome."""
        with tempfile.TemporaryDirectory() as folder:
            task, answer = Path(folder) / "task", Path(folder) / "answer"
            order = [name for name in order if name.startswith("tests/")]  # pytest loads a doctest itself
            tasks = {"file": mutant.file, "index": mutant.index, "tests": order, "answer": str(answer)}
            task.write_text(json.dumps(tasks))
            os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, "--alone", str(task)])
            found = json.loads(answer.read_text()) if answer.exists() else {"by": "a crash"}
            return {"ran": len(order), **found} if order else {"by": None, "ran": 0}


def thinned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that are used: at most ``VARIANTS`` of each parametrised test.

    Tests of the laboratory and of the folders ``NO_PART`` are left out.
    """
    left_out = ("lab/", *(f"tests/{name}/" for name in NO_PART))
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.nodeid.startswith(left_out):
            groups[item.nodeid.split("[")[0]].append(item)
    return [item for group in groups.values() for item in group[:: -(-len(group) // VARIANTS)]]


def digest(paths: Iterable[Path]) -> str:
    """Return a short fingerprint of the contents of files."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).hexdigest()[:12]


def save(path: Path, text: str) -> None:
    """Write a file, and make its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def everything() -> list[Mutant]:
    """Return all mutants of ``PACKAGES``."""
    files = [p for package in PACKAGES for p in sorted((SOURCE / package).glob("*.py"))]
    return [m for p in files if str(p.relative_to(SOURCE)) not in LEFT_OUT for m in mutants(p, SOURCE)]


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants of the files that the options name, or a random sample of them, in the order of the files."""
    all_of_them = [m for m in everything() if m.file.startswith(tuple(options.only))]
    few = sorted(all_of_them, key=lambda m: m.rank(options.seed))[: options.sample or None]
    return sorted(few, key=lambda m: (m.file, m.index))


def outcomes() -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the last outcome of every mutant that was run, by its key."""
    path = OUTPUT / "outcomes.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {tuple(record["key"]): record for record in records}


def judgements() -> dict[tuple[str, ...], str]:
    """Return the judgements in ``survivors.md``.

    A line is ``- function: change: judgement``, below the name of a file.
    """
    found: dict[tuple[str, ...], str] = {}
    file = ""
    for line in JUDGEMENTS.read_text("utf-8").splitlines() if JUDGEMENTS.exists() else []:
        if line.startswith("## "):
            file = line[3:].strip()
        elif match := re.match(r"- ([^ ]+): (`.*` → `.*`(?: #\d+)?): (\w+)[:;,.] ", line):
            found[file, match[1], match[2]] = match[3]
    return found


def report(options: argparse.Namespace) -> None:
    """Print a table of outcomes by file, and the survivors without a judgement."""
    known, judged = outcomes(), judgements()
    wanted = [m for m in chosen(options) if m.key in known and known[m.key]["source"] == digest([SOURCE / m.file])]
    survivors = [m for m in wanted if known[m.key]["by"] is None]
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in wanted:
        record = known[mutant.key]
        kind = "caught" if record["by"] else "survived" if record["ran"] else "not reached"
        for name in (mutant.file, mutant.file.split("/")[0], "all"):
            rows[name].update(["mutants", kind, *(["equivalent"] if judged.get(mutant.key) == "equivalent" else [])])
    columns = ("mutants", "caught", "survived", "not reached", "equivalent")
    print("\n| | " + " | ".join(columns) + " | caught % |\n|---|" + "---:|" * 6)
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        row = rows[name]
        cells = " | ".join(str(row[column]) for column in columns)
        print(f"| {name} | {cells} | {100 * row['caught'] / row['mutants']:.1f} |")
    print(f"\nby judgement: {dict(Counter(judged.get(m.key, 'none yet') for m in survivors))}")
    file = ""
    for mutant in survivors:
        if mutant.key not in judged:
            if mutant.file != file:
                file = mutant.file
                print(f"\n## {file}\n")
            print(f"- {mutant.function}: {mutant.change}: ")
    gone = set(judged) - {m.key for m in everything()}
    for key in sorted(gone):
        print("\njudged, but no longer there: " + ": ".join(key), end="")
    print()


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=600, help="how many mutants, drawn at random; 0 for all of them")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests for a mutant, as traced")
    parser.add_argument("--only", nargs="*", default=[""], help="files whose name begins so: sensitivity losses/pear")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--report", action="store_true", help="run nothing; print what is known")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.alone:
        alone(options.alone)
        return
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        (OUTPUT / "outcomes.jsonl").unlink(missing_ok=True)
    if not options.report:
        pytest.main(PYTEST, plugins=[Runner(options)])
    report(options)


if __name__ == "__main__":
    main()
