"""How the solvers are compiled: messages to the user, the cache, and the compact data types of compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from typer.testing import CliRunner

import pear
from pear.cli.app import app
from pear.compile import jit
from pear.compile.compilation_notice import notice
from pear.compile.jit import address_of, call_address, entry, floor, inner, refer, span
from pear.train.compiled.compile_all import PARTS

ROOT = Path(__file__).resolve().parents[2]

# The decorators alone: what the package imports beside them takes five times as long, and says nothing here.
SCRIPT = """
import sys, tempfile, types
import numba

for name in ("pear",):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{source!r} + "/" + name.replace(".", "/")]

if {broken}:
    def refuse(*args, **options):
        raise PermissionError("read-only")
    tempfile.TemporaryFile = refuse

from pear.compile.jit import cache_jit

@cache_jit
@numba.njit
def double(x):
    return 2 * x

@cache_jit
@numba.njit
def half(x):
    return x / 2

print(double(3), half(3))
"""


def run_script(tmp_path: Path, broken: bool = False) -> str:
    """Return what a script that needs compiled code prints to stderr; its results must be right in any case."""
    script = tmp_path / "script.py"
    if not script.exists():
        script.write_text(SCRIPT.format(broken=broken, source=str(Path(pear.__file__).parents[1])))
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(Path(pear.__file__).parents[1])}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment)
    assert done.stdout == "6 1.5\n"
    return done.stderr


def test_a_plain_script_says_once_that_it_compiles_and_the_next_one_is_quiet(tmp_path: Path) -> None:
    (line,) = run_script(tmp_path).splitlines()
    assert line.startswith("pear compiles its solvers, once")
    assert str(tmp_path / "cache") in line
    assert "'pear compile'" in line
    assert run_script(tmp_path) == ""


def test_without_a_directory_for_the_cache_it_says_so(tmp_path: Path) -> None:
    for _ in range(2):
        (line,) = run_script(tmp_path, broken=True).splitlines()
        assert "again in every process" in line
        assert "NUMBA_CACHE_DIR" in line


def test_functions_of_others_are_not_announced() -> None:
    before = list(notice.compiled)

    @numba.njit  # type: ignore[untyped-decorator]
    def stranger(x: int) -> int:
        return x + 1

    assert stranger(1) == 2
    assert notice.compiled == before


def test_every_cache_is_guarded() -> None:
    """Numba's own cache would run old code after a change in a file that the cached function calls into."""
    sources = Path(pear.__file__).parent.rglob("*.py")
    assert [path for path in sources if "cache=True" in path.read_text(encoding="utf-8")] == []


def test_pear_compile_compiles_everything_and_then_has_nothing_to_do() -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["compile"])
    assert first.exit_code == 0
    again = runner.invoke(app, ["compile"])
    assert again.exit_code == 0
    assert again.stdout.startswith("Nothing to do")
    for line in first.stdout.splitlines()[:-1]:
        assert line.partition(": compiled")[0] in PARTS


# ------------------------------------------------------------------------------------------------------- the public way

FILLED = """
import numpy as np
from pear.compile import jit
from pear.solvers.binary.dynamic_programming import solve_by_dynamic_programming

assert jit.PRIVATE is {private}
weights, capacities = np.array([[3, 4, 2]]), np.array([6])
values = np.array([[5.0, 6.0, 3.0], [5.0, 1.0, 3.0]])
found = solve_by_dynamic_programming(values, weights, capacities, np.zeros(2, np.int64))
print(found.chosen.tolist(), found.best.tolist())
"""
REGRETS = """
import torch, pear
from pear.compile import jit

assert jit.PRIVATE is {private}
torch.manual_seed(0)
paths = pear.tasks.shortest_path((4, 4)).problem
predicted, true = torch.rand(2, 200, paths.n, dtype=torch.float64)
torch.set_num_threads(2)
print(pear.regret_gradient(paths, predicted, true, smoothing=0.1).numpy().tobytes().hex())
loss = pear.PEARLoss(paths, smoothing=0.1)
data = torch.rand(20, 3), torch.rand(20, paths.n)
pear.fit(torch.nn.Linear(3, paths.n), loss, data, data, config=pear.FitConfig(max_epochs=2))
"""


def run_both_ways(code: str, tmp_path: Path) -> tuple[str, str]:
    """Return what a script prints with private parts of numba, and what it prints with public ones alone."""
    printed = []
    for private in (True, False):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / str(private))}
        environment |= {} if private else {"PEAR_PLAIN_NUMBA": "1"}
        command = [sys.executable, "-c", code.format(private=private)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=True, env=environment)
        printed.append(done.stdout)
    return printed[0], printed[1]


def test_the_public_way_gives_the_same_results(tmp_path: Path) -> None:
    private, public = run_both_ways(FILLED, tmp_path)
    assert private == public == "[[0, 1, 1], [1, 0, 1]] [9.0, 8.0]\n"


@pytest.mark.long
def test_the_active_set_method_compiles_the_public_way(tmp_path: Path) -> None:
    """The results agree. With public parts of numba the compilation takes minutes, hence the private ones."""
    private, public = run_both_ways(REGRETS, tmp_path)
    first, second = (np.frombuffer(bytes.fromhex(text.strip())) for text in (private, public))
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)


def test_untried_versions_of_numba_are_used_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "TRIED", ((0, 1), (0, 2)))
    assert not jit._jit_uses_private_parts()


def test_the_tried_versions_are_the_bounds_of_the_requirement() -> None:
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    oldest, newest = jit.TRIED
    assert f"numba>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}" in requirements


def test_importing_pear_imports_no_numba_and_starts_no_thread() -> None:
    code = "import sys, threading, pear; print('numba' in sys.modules, threading.active_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "False 1\n"


# ------------------------------------------------------------------------------------------------------- compact forms


class Inside(NamedTuple):
    flags: Any
    bytes: Any


class Outside(NamedTuple):
    cube: Any
    matrix: Any
    vector: Any
    inside: Inside
    factor: float


@pytest.fixture
def arrays() -> Outside:
    inside = Inside(np.array([True, False, True]), np.array([3, -1, 2], np.int8))
    return Outside(
        np.arange(24.0).reshape(2, 3, 4), np.arange(12, dtype=np.int32).reshape(3, 4), np.ones(4), inside, 0.5
    )


def work(o: Outside) -> float:
    """Read and write every kind of array, by rows and by entries; return a sum."""
    rows, columns = o.matrix.shape
    total = 0.0
    for j in span(1, rows):
        row = o.cube[1, j, 0] * o.factor
        for k in span(columns):
            o.vector[k] += o.cube[0][j][k] + o.matrix[j, k]
            total += o.vector[k]
        if o.inside.flags[j]:
            o.inside.bytes[j] = o.inside.bytes[j] - 1
            o.inside.flags[0] = False
        total += row
    return total + len(o.vector)


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the decorator of entry points, with a cache that is thrown away."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(notice, "silent", True)
    return entry


def test_compact_arrays_are_the_arrays(arrays: Outside, compiled: Any) -> None:
    same = arrays._replace(vector=arrays.vector.copy(), inside=Inside(*(part.copy() for part in arrays.inside)))
    work_on = inner(work)

    def outer(o: Outside) -> float:
        return work_on(refer(o))  # type: ignore[no-any-return]

    assert compiled(outer)(same) == work(arrays)
    np.testing.assert_array_equal(same.vector, arrays.vector)
    for part, other in zip(same.inside, arrays.inside, strict=True):
        np.testing.assert_array_equal(part, other)


def test_a_span_with_a_step_is_refused(compiled: Any) -> None:
    def steps(end: int) -> int:
        total = 0
        for k in span(0, end, 2):
            total += k
        return total

    with pytest.raises(numba.core.errors.TypingError):
        compiled(steps)(5)
    with pytest.raises(TypeError):
        steps(5)


def test_arrays_that_are_not_contiguous_are_refused(arrays: Outside, compiled: Any) -> None:
    def outer(o: Outside) -> int:
        return len(refer(o).vector)

    with pytest.raises(Exception, match="ascontiguousarray"):
        compiled(outer)(arrays._replace(vector=np.ones(8)[::2]))


def test_floor_is_that_of_numpy_far_beyond_the_integers(arrays: Outside, compiled: Any) -> None:
    x = np.array([-2.5, -0.0, 1e300, np.inf])

    def outer(o: Outside) -> None:
        held = refer(o)
        for k in span(len(held.vector)):
            held.vector[k] = floor(held.vector[k])

    held = arrays._replace(vector=x.copy())
    compiled(outer)(held)
    np.testing.assert_array_equal(held.vector, np.floor(x))


def test_sums_keep_their_order_where_they_must(arrays: Outside, compiled: Any) -> None:
    """A vectorised sum would be rounded in another way."""
    x = np.random.default_rng(0).normal(size=1000)

    def outer(o: Outside) -> float:
        held, total = refer(o), 0.0
        for k in span(len(held.vector)):
            total += held.vector[k]
        return total

    assert compiled(outer, any_order=False)(arrays._replace(vector=x)) == np.add.accumulate(x)[-1]


def test_a_function_is_called_by_its_address(arrays: Outside, compiled: Any) -> None:
    def add(o: Outside, by: float) -> None:
        held = refer(o)
        for k in span(len(held.vector)):
            held.vector[k] += by

    def twice(address: int, o: Outside) -> None:
        call_address(address, (o, 1.0))
        call_address(address, (o, o.factor))

    address = address_of(compiled(add), (arrays, 0.0))
    compiled(twice)(address, arrays)
    np.testing.assert_array_equal(arrays.vector, np.full(4, 2.5))
