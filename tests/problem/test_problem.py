"""``Problem``: every kind of input, every check with its message, selection, and the minimisation form."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from pear.errors import ProblemError
from pear.problem import Problem, QuadraticProgram, Smooth
from pear.problem.tensor_conversion import to_batch_tensor

F64 = torch.float64
INF, NAN = float("inf"), float("nan")
ROWS = [[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]

MATRIX_KINDS = {
    "list": lambda rows: rows,
    "tuples": lambda rows: tuple(tuple(row) for row in rows),
    "list of tensors": lambda rows: [torch.tensor(row) for row in rows],
    "torch64": lambda rows: torch.tensor(rows, dtype=F64),
    "torch32": torch.tensor,
    "torch16": lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
    "torch int": lambda rows: torch.tensor(rows).long(),
    "torch coo": lambda rows: torch.tensor(rows).to_sparse(),
    "torch csr": lambda rows: torch.tensor(rows, dtype=F64).to_sparse_csr(),
    "torch gradient": lambda rows: torch.tensor(rows, requires_grad=True),
    "numpy64": np.array,
    "numpy32": lambda rows: np.array(rows, dtype=np.float32),
    "numpy16": lambda rows: np.array(rows, dtype=np.float16),
    "numpy long double": lambda rows: np.array(rows, dtype=np.longdouble),
    "numpy int": lambda rows: np.array(rows, dtype=np.int32),
    "numpy unsigned": lambda rows: np.array(rows, dtype=np.uint8),
    "numpy big endian": lambda rows: np.array(rows, dtype=">f8"),
    "numpy fortran": lambda rows: np.asfortranarray(rows),
    "numpy reversed": lambda rows: np.array(rows)[::-1, ::-1].copy()[::-1, ::-1],
    "scipy csr": scipy.sparse.csr_matrix,
    "scipy csc array": lambda rows: scipy.sparse.csc_array(np.array(rows)),
    "scipy coo": scipy.sparse.coo_matrix,
}


def tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


def equal(actual: torch.Tensor | None, expected: Any) -> None:
    torch.testing.assert_close(actual, tensor(expected), rtol=0, atol=0)


@pytest.fixture
def mixed() -> Problem:
    """Return a problem with fields for four samples: G, h and ub differ, and Q, A, b and lb are shared."""
    return Problem(
        Q=[[2.0, 0.0], [0.0, 1.0]],
        A=[[1.0, 1.0]],
        b=[1.0],
        G=torch.arange(24.0).reshape(4, 3, 2),
        h=torch.arange(12.0).reshape(4, 3),
        lb=0,
        ub=torch.arange(1.0, 9.0).reshape(4, 2),
    )


class TestInputs:
    @pytest.mark.parametrize("kind", MATRIX_KINDS)
    def test_every_kind_of_matrix_becomes_the_same_dense_float64(self, kind: str) -> None:
        problem = Problem(A=MATRIX_KINDS[kind](ROWS), b=[0, 0])
        equal(problem.A, ROWS)
        assert problem.A is not None
        assert problem.A.is_contiguous()
        assert not problem.A.requires_grad

    @pytest.mark.parametrize("kind", [kind for kind in MATRIX_KINDS if "scipy" not in kind])
    def test_every_kind_of_per_sample_vector(self, kind: str) -> None:
        equal(Problem(ub=MATRIX_KINDS[kind](ROWS)).ub, ROWS)

    def test_booleans_become_numbers(self) -> None:
        equal(Problem(G=np.array([[True, False]]), h=torch.tensor([True])).G, [[1, 0]])

    @pytest.mark.parametrize("one", [1, 1.0, np.float32(1), np.array(1), torch.tensor(1), True])
    def test_scalar_bounds_are_spread(self, one: Any) -> None:
        problem = Problem(lb=-INF, ub=one, n=3)
        equal(problem.lb, [-INF] * 3)
        equal(problem.ub, [1, 1, 1])

    def test_read_only_numpy(self) -> None:
        fixed = np.broadcast_to(np.ones(2), (3, 2))
        assert not fixed.flags.writeable
        equal(Problem(ub=fixed).ub, np.ones((3, 2)))

    def test_changing_the_input_later_changes_nothing(self) -> None:
        array, values, mask = np.ones((1, 2)), torch.ones(2, dtype=F64), torch.tensor([True, False])
        problem = Problem(A=array, b=[1], ub=values, integer=mask)
        array[:], values[:], mask[:] = 7, 7, True
        equal(problem.A, [[1, 1]])
        equal(problem.ub, [1, 1])
        assert problem.integer is not None
        assert problem.integer.tolist() == [True, False]

    def test_absent_fields_stay_none_and_infinities_are_allowed(self) -> None:
        problem = Problem(G=[[1, 1], [1, -1]], h=[INF, 2], lb=[-INF, 0])
        assert (problem.Q, problem.A, problem.b, problem.ub, problem.phi) == (None,) * 5
        equal(problem.h, [INF, 2])

    def test_rounding_asymmetry_is_symmetrised(self) -> None:
        problem = Problem(Q=[[1.0, 0.5 + 1e-10], [0.5, 1.0]])
        assert problem.Q is not None
        assert torch.equal(problem.Q, problem.Q.mT)

    def test_float32_covariances_pass_the_symmetry_check(self) -> None:
        Q = torch.tensor([[1.0, 0.5 + 1e-6], [0.5, 1.0]], dtype=torch.float32)
        assert Problem(Q=Q).n == 2
        with pytest.raises(ProblemError, match="Q must be symmetric"):
            Problem(Q=Q.to(F64))

    def test_singular_and_zero_curvature_is_semidefinite(self) -> None:
        factor = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
        Problem(Q=factor @ factor.T)
        Problem(Q=-factor @ factor.T, sense="max")
        Problem(Q=np.zeros((3, 2, 2)))

    def test_no_rows_and_no_samples(self) -> None:
        assert Problem(A=np.zeros((0, 3)), b=[]).n == 3
        assert Problem(Q=np.zeros((0, 2, 2)), lb=np.zeros((0, 2)), ub=1).batch == 0


class TestInteger:
    @pytest.mark.parametrize(
        "integer",
        [
            [0, 2],
            (2, 0),
            {0, 2},
            range(0, 3, 2),
            np.array([0, 2], dtype=np.uint8),
            torch.tensor([0, 2]),
            [True, False, True],
            np.array([True, False, True]),
            torch.tensor([True, False, True]),
        ],
    )
    def test_masks_and_indices(self, integer: Any) -> None:
        problem = Problem(n=3, integer=integer)
        assert problem.is_integer
        assert problem.integer is not None
        assert problem.integer.tolist() == [True, False, True]

    @pytest.mark.parametrize("integer", [None, False, [], [False, False], np.zeros(2, dtype=bool)])
    def test_none_at_all(self, integer: Any) -> None:
        problem = Problem(n=2, integer=integer)
        assert not problem.is_integer
        assert problem.integer is None
        assert problem.relaxed() is problem

    def test_all(self) -> None:
        problem = Problem(lb=0, n=2, integer=True)
        assert problem.integer is not None
        assert problem.integer.tolist() == [True, True]
        relaxed = problem.relaxed()
        assert relaxed.integer is None
        assert relaxed.lb is problem.lb
        assert problem.is_integer

    def test_a_mask_tells_n_but_indices_do_not(self) -> None:
        assert Problem(integer=[False, True, False]).n == 3
        with pytest.raises(ProblemError, match="pass n="):
            Problem(integer=[1, 2])


ENTROPY = Smooth(torch.sum, torch.ones_like, torch.diag_embed)  # a smooth term keeps its problem dense

MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, r"number of variables cannot be told from the fields given; pass n="),
    "scalar bounds only": ({"lb": 0, "ub": 1}, r"pass n="),
    "n of wrong kind": ({"n": 2.5}, r"n must be a positive integer, got 2\.5"),
    "n zero": ({"n": 0}, r"n must be a positive integer, got 0"),
    "n bool": ({"n": True}, r"n must be a positive integer, got True"),
    "no columns": ({"lb": []}, r"lb of shape \(0,\) has 0 variables; a problem needs at least one"),
    "n conflict": (
        {"n": 3, "A": [[1, 1]], "b": [1]},
        r"A of shape \(1, 2\) has 2 variables but n=3 has 3; the last dimension of Q, A, G, lb, ub",
    ),
    "field conflict": (
        {"Q": np.eye(3), "ub": [1, 1]},
        r"ub of shape \(2,\) has 2 variables but Q of shape \(3, 3\) has 3",
    ),
    "integer conflict": (
        {"ub": [1, 1], "integer": [True, False, True]},
        r"integer of shape \(3,\) has 3 variables but ub of shape \(2,\) has 2",
    ),
    "A flat": ({"A": [1, 2], "b": [1]}, r"A must have shape \(p, n\) or per sample \(N, p, n\); got \(2,\)"),
    "G deep": ({"G": np.zeros((1, 1, 1, 2)), "h": [1]}, r"G must have shape \(m, n\) or .*; got \(1, 1, 1, 2\)"),
    "b scalar": ({"A": [[1, 2]], "b": 1}, r"b must have shape \(p,\) or per sample \(N, p\); got \(\)"),
    "ub deep": ({"ub": np.zeros((1, 1, 2))}, r"ub must have shape a number, \(n,\) or .*; got \(1, 1, 2\)"),
    "Q not square": ({"Q": np.zeros((2, 3))}, r"Q must be square, \(n, n\) or .*; got \(2, 3\)"),
    "A without b": (
        {"A": [[1, 2]]},
        r"A of shape \(1, 2\) was given without b; the constraint is Az = b: pass b of shape \(p,\).*or leave out A",
    ),
    "b without A": ({"b": [1], "n": 2}, r"b of shape \(1,\) was given without A; the constraint is Az = b: pass A"),
    "G without h": ({"G": [[1, 2]]}, r"G of shape \(1, 2\) was given without h; the constraint is Gz ≤ h: pass h"),
    "h without G": ({"h": [1], "n": 2}, r"h of shape \(1,\) was given without G; the constraint is Gz ≤ h: pass G"),
    "A and b": (
        {"A": [[1, 2]], "b": [1, 2]},
        r"A of shape \(1, 2\) has 1 rows but b of shape \(2,\) has 2 entries; Az = b needs one entry for each row",
    ),
    "G and h": (
        {"G": np.ones((5, 3, 2)), "h": [1, 2]},
        r"G of shape \(5, 3, 2\) has 3 rows but h of shape \(2,\) has 2",
    ),
    "samples": (
        {"A": np.ones((4, 1, 2)), "b": np.ones((5, 1))},
        r"b of shape \(5, 1\) has 5 samples but A of shape \(4, 1, 2\) has 4; fields given per sample must have",
    ),
    "complex torch": ({"ub": torch.ones(2, dtype=torch.complex64)}, r"ub must hold real numbers, got type complex64"),
    "complex numpy": ({"ub": np.ones(2) * 1j}, r"ub must hold real numbers, got type complex128"),
    "complex scipy": ({"Q": scipy.sparse.eye(2) * 1j}, r"Q must hold real numbers, got type complex128"),
    "strings": ({"lb": ["0", "1"]}, r"lb must hold real numbers, got type <U1"),
    "string": ({"lb": "zero", "n": 2}, r"lb must hold real numbers, got type <U4"),
    "objects": ({"A": [[{}, {}]], "b": [1]}, r"A must hold real numbers, got type object$"),
    "None in bounds": ({"lb": [0, None]}, r"lb must hold real numbers, got type object; write an absent bound as -inf"),
    "dates": ({"ub": np.array(["2020-01-01"], dtype="M8[D]")}, r"ub must hold real numbers, got type datetime64"),
    "ragged": ({"A": [[1, 2], [3]], "b": [1, 1]}, r"A cannot be read as an array: .*; pass rows of equal length"),
    "ragged tensors": (
        {"A": [torch.ones(2), torch.ones(3)], "b": [1, 1]},
        r"A is a list of tensors of different shapes: \[\(2,\), \(3,\)\]; make them equal",
    ),
    "sparse vector": (
        {"A": [[1, 2]], "b": scipy.sparse.eye(1)},
        r"b is a scipy sparse matrix; only Q, A and G may be sparse: pass a dense array",
    ),
    "list of sparse": ({"G": [scipy.sparse.eye(2)] * 2, "h": [1, 1]}, r"G must hold real numbers, got type object"),
    "NaN shared": ({"A": [[1, 2], [3, NAN]], "b": [1, 1]}, r"A\[1, 1\] is nan; A may hold finite numbers: correct"),
    "NaN sample": (
        {"ub": [[1, 1], [NAN, 1]]},
        r"ub\[1, 0\] is nan; ub may hold finite numbers, or \+inf where there is",
    ),
    "NaN scalar": ({"lb": NAN, "n": 2}, r"lb\[0\] is nan; lb may hold finite numbers, or -inf where there is none"),
    "NaN Q": ({"Q": [[NAN, 0], [0, 1]]}, r"Q\[0, 0\] is nan"),
    "infinite A": ({"A": [[1, INF]], "b": [1]}, r"A\[0, 1\] is inf; A may hold finite numbers: correct this entry"),
    "infinite b": ({"A": [[1, 2]], "b": [-INF]}, r"b\[0\] is -inf"),
    "h minus infinity": (
        {"G": [[1, 2]], "h": [-INF]},
        r"h\[0\] is -inf; h may hold finite numbers, or \+inf where there",
    ),
    "lb plus infinity": ({"lb": [0, INF]}, r"lb\[1\] is inf; lb may hold finite numbers, or -inf where there is none"),
    "ub minus infinity": (
        {"ub": [0, -INF]},
        r"ub\[1\] is -inf; ub may hold finite numbers, or \+inf where there is none",
    ),
    "crossed": ({"lb": [0, 2, 5], "ub": [1, 1.5, 1]}, r"lb > ub at variable 1: 2 > 1\.5; no point lies between them"),
    "crossed sample": (
        {"lb": 1, "ub": [[1, 1], [2, 0]]},
        r"lb > ub at variable 1 of sample 1: 1 > 0; .*correct the bounds",
    ),
    "asymmetric": (
        {"Q": [[1, 1], [0, 1]]},
        r"Q must be symmetric: entries differ from their mirror image by up to 1; pass \(Q \+ Q\.T\) / 2",
    ),
    "asymmetric sample": (
        {"Q": [np.eye(2), [[1, 0.5], [0, 1]]]},
        r"Q must be symmetric: .* up to 0\.5 in sample 1; pass",
    ),
    "indefinite min": (
        {"Q": np.diag([1.0, -2.0])},
        r"Q must be positive semidefinite for sense='min': its least eigenvalue is -2; if that is rounding, add 2 "
        r"times the identity; if you maximise, pass sense='max'",
    ),
    "indefinite hidden": (
        {"Q": [[1, 2], [2, 1]]},
        r"positive semidefinite for sense='min': its least eigenvalue is -1;",
    ),
    "indefinite sample": (
        {"Q": [np.eye(2), -np.eye(2)]},
        r"its least eigenvalue is -1 in sample 1; if that is rounding",
    ),
    "indefinite max": (
        {"Q": np.diag([-1.0, 3.0]), "sense": "max"},
        r"Q must be negative semidefinite for sense='max': its largest eigenvalue is 3; the objective is maximised as "
        r"written, so a risk or cost matrix enters with a minus sign \(pass -Q\)",
    ),
    "just indefinite": ({"Q": np.diag([1.0, -2e-9])}, r"its least eigenvalue is -2e-09"),
    "sense close": (
        {"n": 1, "sense": "maximise"},
        r"sense must be 'min' or 'max', got 'maximise'; did you mean 'max'\?",
    ),
    "sense case": ({"n": 1, "sense": "MIN"}, r"got 'MIN'; did you mean 'min'\?"),
    "sense far": ({"n": 1, "sense": "up"}, r"sense must be 'min' or 'max', got 'up'$"),
    "sense number": ({"n": 1, "sense": -1}, r"sense must be 'min' or 'max', got -1$"),
    "integer shape": (
        {"n": 2, "integer": [[True, False]]},
        r"integer must be True, a bool mask of shape \(n,\) or a list of indices; got shape \(1, 2\) of bool",
    ),
    "integer float": ({"n": 2, "integer": [0.0, 1.0]}, r"integer must be .*; got shape \(2,\) of float64"),
    "integer number": ({"n": 2, "integer": 1}, r"integer must be True.*; got shape \(\) of int64"),
    "integer outside": ({"n": 2, "integer": [0, 2]}, r"integer holds the index 2; the variables are numbered 0 to 1"),
    "integer negative": ({"n": 2, "integer": [-1]}, r"integer holds the index -1; the variables are numbered 0 to 1"),
    "integer 0/1": ({"n": 3, "integer": [1, 0, 1]}, r"holds an index twice; if it is a 0/1 mask, make it one of bools"),
    "too large scipy": (
        {"A": scipy.sparse.coo_matrix((20000, 20000)), "b": np.zeros(20000), "phi": ENTROPY},
        r"A of shape \(20000, 20000\) needs 3\.0 GiB as a dense float64 array; the limit is 2 GiB; split the samples",
    ),
    "too large torch": (
        {"G": torch.sparse_coo_tensor(size=(3, 10000, 10000), check_invariants=True), "h": np.zeros(10000)},
        r"G of shape \(3, 10000, 10000\) needs 2\.2 GiB as a dense",
    ),
    "too large dense": (
        {"Q": torch.zeros(1).expand(30000, 100, 100)},
        r"Q of shape \(30000, 100, 100\) needs 2\.2 GiB",
    ),
    "too many variables": (
        {"A": np.ones((1, 20000)), "b": [1.0]},
        r"the curvature H of shape \(20000, 20000\) needs 3\.0 GiB",
    ),
    "devices": (
        {"A": torch.ones(1, 2), "b": torch.ones(1, device="meta")},
        r"b is on meta but A is on cpu; bring them together: problem\.to\(device\) moves the problem",
    ),
    "phi": (
        {"n": 2, "phi": torch.log},
        r"phi must be a pear\.Smooth\(value, gradient, hessian\), got builtin_function",
    ),
    "phi start": (
        {"n": 2, "phi": Smooth(torch.sum, torch.ones_like, torch.diag_embed, start=[1, 1, 1])},
        r"Smooth\.start of shape \(3,\) has 3 entries but n is 2",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_bad_problem_is_refused_with_a_message(case: str) -> None:
    arguments, message = MESSAGES[case]
    with pytest.raises(ProblemError, match=message):
        Problem(**arguments)


class TestObject:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"n": 4}, "Problem(min, n=4)"),
            (
                {"G": np.ones((64, 5, 100)), "h": np.ones(5), "lb": 0, "ub": 1, "sense": "max", "integer": True},
                "Problem(max, n=100, 5 inequalities, bounds, 100 integer, batch of 64)",
            ),
            ({"Q": np.eye(2), "A": [[1, 1]], "b": [1]}, "Problem(min, n=2, quadratic, 1 equality)"),
            (
                {"n": 2, "phi": Smooth(torch.sum, torch.ones_like, torch.diag_embed), "integer": [1]},
                "Problem(min, n=2, smooth term, 1 integer)",
            ),
        ],
    )
    def test_repr(self, arguments: dict[str, Any], text: str) -> None:
        assert repr(Problem(**arguments)) == text

    @pytest.mark.parametrize("name", ["Q", "lb", "sense", "n", "something"])
    def test_immutable(self, mixed: Problem, name: str) -> None:
        with pytest.raises(AttributeError, match=rf"a Problem cannot be changed \(nor its {name}\); make a new one"):
            setattr(mixed, name, 1)
        with pytest.raises(AttributeError, match=rf"a Problem cannot be changed \(nor its {name}\)"):
            delattr(mixed, name)

    def test_cannot_be_looped_over(self) -> None:
        with pytest.raises(TypeError, match="not iterable"):
            list(Problem(n=2))  # type: ignore[call-overload]

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
    def test_copies(self, mixed: Problem, copied: Any) -> None:
        other = copied(mixed)
        assert other is not mixed
        assert repr(other) == repr(mixed)
        assert torch.equal(other.G, mixed.G)
        with pytest.raises(AttributeError, match="cannot be changed"):
            other.Q = None

    def test_sign(self) -> None:
        assert Problem(n=1).sign == 1
        assert Problem(n=1, sense="max").sign == -1

    def test_to_keeps_data_in_float64_and_remembers_the_dtype(self, mixed: Problem) -> None:
        assert mixed.dtype == F64
        for other in (mixed.to(dtype=torch.float32), mixed.to(torch.float32), mixed.to("cpu", torch.float32)):
            assert other.dtype == torch.float32
            assert other.G is not None
            assert other.G.dtype == F64
        assert other.to("cpu").dtype == torch.float32
        assert mixed.dtype == F64

    def test_to_moves_everything(self) -> None:
        phi = Smooth(torch.sum, torch.ones_like, torch.diag_embed, start=[1.0, 1.0])
        moved = Problem(Q=np.eye(2), ub=1, integer=True, phi=phi).to("meta")
        assert moved.phi is not None
        parts = (moved.Q, moved.ub, moved.integer, moved.phi.start)
        assert [part.device.type for part in parts if part is not None] == ["meta"] * 4
        assert moved.device.type == "meta"
        assert phi.start.device.type == "cpu"

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_on_a_gpu(self, mixed: Problem) -> None:
        moved, cost = mixed.to("cuda"), torch.ones(4, 2, device="cuda")
        assert moved.device == cost.device
        qp = moved[torch.tensor([0, 2])].canonical(cost[:2], smoothing=0.1, b=[2.0])
        assert {t.device for t in (qp.H, qp.c, qp.A, qp.b, qp.G, qp.h, qp.lb, qp.ub)} == {cost.device}
        made = Problem(Q=torch.eye(2, device="cuda"), ub=[1, 2], integer=True)
        assert made.integer is not None
        assert made.ub is not None
        assert made.integer.device == made.ub.device == cost.device
        with pytest.raises(ProblemError, match="cost is on cpu but the problem is on cuda:0; bring them together"):
            moved.canonical(torch.ones(4, 2))

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.complex64])
    def test_to_refuses_other_types(self, dtype: torch.dtype) -> None:
        with pytest.raises(ProblemError, match=f"dtype must be torch.float32 or torch.float64, got {dtype}"):
            Problem(n=1).to(dtype=dtype)


class TestIndex:
    @pytest.mark.parametrize(
        ("index", "rows"),
        [
            (2, [2]),
            (-1, [3]),
            (np.int64(1), [1]),
            (torch.tensor(1), [1]),
            (slice(1, 3), [1, 2]),
            (slice(None, None, -1), [3, 2, 1, 0]),
            (slice(2, 2), []),
            ([], []),
            ([3, 0, 0], [3, 0, 0]),
            (range(2), [0, 1]),
            (np.array([0, 1, 2])[::-1], [2, 1, 0]),
            (torch.tensor([1, -1]), [1, 3]),
            (torch.tensor([True, False, True, False]), [0, 2]),
            ([False, True, False, False], [1]),
            (np.zeros(4, dtype=bool), []),
        ],
    )
    def test_selects_what_is_per_sample(self, mixed: Problem, index: Any, rows: list[int]) -> None:
        part = mixed[index]
        assert part.batch == len(rows)
        for mine, every in ((part.G, mixed.G), (part.h, mixed.h), (part.ub, mixed.ub)):
            assert mine is not None
            assert every is not None
            assert torch.equal(mine, every[rows])
        assert part.Q is mixed.Q
        assert part.A is mixed.A
        assert part.lb is mixed.lb
        assert mixed.batch == 4

    def test_keeps_sense_integrality_and_dtype(self) -> None:
        problem = Problem(ub=np.ones((3, 2)), sense="max", integer=[0]).to(torch.float32)[1]
        assert (problem.sense, problem.is_integer, problem.dtype, problem.batch) == ("max", True, torch.float32, 1)

    @pytest.mark.parametrize("index", [0, 99, [1, 2], slice(3), torch.tensor([True])])
    def test_a_shared_problem_is_the_same_for_every_sample(self, index: Any) -> None:
        problem = Problem(n=2, ub=1)
        assert problem.batch is None
        assert problem[index] is problem

    @pytest.mark.parametrize(
        ("index", "message"),
        [
            (4, "sample 4 is out of range; the problem has 4 samples"),
            ([0, -5], "sample -5 is out of range"),
            ([True, False], "the mask has 2 entries but the problem has 4 samples"),
            ([0.0, 1.0], r"selected by an int, a slice, a list of ints or a bool mask; got shape \(2,\) of float64"),
            ([[0, 1]], r"a bool mask; got shape \(1, 2\) of int64"),
        ],
    )
    def test_bad_index(self, mixed: Problem, index: Any, message: str) -> None:
        with pytest.raises(IndexError, match=message):
            mixed[index]

    def test_a_batch_equals_a_loop_of_singles(self, mixed: Problem) -> None:
        cost = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
        whole = mixed.canonical(cost, smoothing=0.3)
        for i in range(4):
            one = mixed[i].canonical(cost[i : i + 1], smoothing=0.3)
            for name in ("H", "c", "A", "b", "G", "h", "lb", "ub"):
                every = getattr(whole, name)
                assert torch.equal(getattr(one, name)[0], every[i if len(every) == 4 else 0]), name


class TestCanonical:
    def test_minimise(self, mixed: Problem) -> None:
        cost = torch.arange(8.0).reshape(4, 2).requires_grad_()
        qp = mixed.canonical(cost, smoothing=0.5)
        assert isinstance(qp, QuadraticProgram)
        equal(qp.H, [[[2.5, 0], [0, 1.5]]])
        equal(qp.c, cost.tolist())
        assert not qp.c.requires_grad
        shapes = [tuple(getattr(qp, name).shape) for name in ("A", "b", "G", "h", "lb", "ub")]
        assert shapes == [(1, 1, 2), (1, 1), (4, 3, 2), (4, 3), (1, 2), (4, 2)]
        assert (qp.batch, qp.n, qp.p, qp.m, qp.diagonal, qp.integer) == (4, 2, 1, 3, False, None)

    def test_maximise_flips_cost_and_curvature_only(self) -> None:
        problem = Problem(Q=[[-2, 1], [1, -3]], G=[[1, 2]], h=[3], lb=0, ub=1, sense="max", integer=[1])
        qp = problem.canonical(torch.tensor([[1.0, -2.0], [0.0, 4.0]]), smoothing=1)
        equal(qp.H, [[[3, -1], [-1, 4]]])
        equal(qp.c, [[-1, 2], [0, -4]])
        equal(qp.G, [[[1, 2]]])
        equal(qp.h, [[3]])
        equal(qp.lb, [[0, 0]])
        assert qp.integer is not None
        assert qp.integer.tolist() == [False, True]

    def test_absent_fields_are_empty_or_infinite(self) -> None:
        qp = Problem(n=2).canonical(torch.ones(3, 2))
        assert qp.diagonal
        assert qp.is_linear
        equal(qp.lb, [[-INF, -INF]])
        equal(qp.ub, [[INF, INF]])
        assert [tuple(t.shape) for t in (qp.H, qp.A, qp.b, qp.G, qp.h)] == [
            (1, 2, 2),
            (1, 0, 2),
            (1, 0),
            (1, 0, 2),
            (1, 0),
        ]
        assert {t.dtype for t in (qp.H, qp.c, qp.A, qp.b, qp.G, qp.h, qp.lb, qp.ub)} == {F64}

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, F64, torch.int64, torch.bool])
    def test_cost_of_any_real_type(self, dtype: torch.dtype) -> None:
        equal(Problem(n=2).canonical(torch.ones(1, 2, dtype=dtype)).c, [[1, 1]])

    def test_cost_that_is_not_finite_passes(self) -> None:
        qp = Problem(n=2).canonical(torch.tensor([[1.0, NAN], [INF, 0.0]]))
        torch.testing.assert_close(qp.c, tensor([[1, NAN], [INF, 0]]), equal_nan=True)

    def test_empty_batch(self, mixed: Problem) -> None:
        nothing = torch.zeros(0, 2)
        assert Problem(n=2, Q=np.eye(2)).canonical(nothing).batch == 0
        qp = mixed[[]].canonical(nothing, smoothing=0.1, Q=torch.zeros(0, 2, 2))
        assert (qp.batch, tuple(qp.G.shape), tuple(qp.H.shape)) == (0, (0, 3, 2), (0, 2, 2))

    def test_the_minimum_form_is_the_negative_of_a_maximised_objective(self) -> None:
        generator = torch.Generator().manual_seed(2)
        factor, z, cost = (torch.randn(3, 3, generator=generator, dtype=F64) for _ in range(3))
        problem = Problem(Q=-factor @ factor.T, sense="max")
        qp = problem.canonical(cost, smoothing=0.7)
        minimised = 0.5 * torch.einsum("bi,ij,bj->b", z, qp.H[0], z) + (qp.c * z).sum(1)
        torch.testing.assert_close(minimised, -problem.objective(z, cost, smoothing=0.7), rtol=1e-13, atol=1e-13)

    def test_changing_the_cost_later_changes_nothing(self) -> None:
        cost = torch.ones(1, 2, dtype=F64)
        qp = Problem(n=2).canonical(cost)
        cost[:] = 5
        equal(qp.c, [[1, 1]])


class TestOverrides:
    def test_curvature_per_sample_in_the_users_sense(self) -> None:
        Q = torch.stack([-torch.eye(2), -2 * torch.eye(2)]).requires_grad_()
        qp = Problem(n=2, sense="max").canonical(torch.ones(2, 2), smoothing=0.5, Q=Q)
        equal(qp.H.diagonal(dim1=1, dim2=2), [[1.5, 1.5], [2.5, 2.5]])
        assert not qp.diagonal
        assert not qp.H.requires_grad

    def test_every_field_can_be_replaced_and_others_stay(self, mixed: Problem) -> None:
        new = {
            "Q": 3 * np.eye(2),
            "A": np.ones((4, 2, 2)),
            "b": [5, 6],
            "G": [[1, 2]],
            "h": torch.ones(4, 1),
            "lb": -1,
            "ub": np.full((4, 2), 9),
        }
        qp = mixed.canonical(torch.zeros(4, 2), **new)
        equal(qp.H, [[[3, 0], [0, 3]]])
        equal(qp.A, np.ones((4, 2, 2)).tolist())
        equal(qp.b, [[5, 6]])
        equal(qp.G, [[[1, 2]]])
        equal(qp.h, [[1]] * 4)
        equal(qp.lb, [[-1, -1]])
        equal(qp.ub, [[9, 9]] * 4)
        old = mixed.canonical(torch.zeros(4, 2), b=torch.arange(4.0)[:, None])
        equal(old.b, [[0], [1], [2], [3]])
        equal(old.A, [[[1, 1]]])
        equal(mixed.b, [1])

    def test_values_are_left_to_the_solve(self) -> None:
        qp = Problem(lb=0, ub=1, n=2).canonical(torch.zeros(2, 2), Q=[[[NAN, 0], [0, 1]], [[1, 0], [0, -1]]], ub=-1)
        assert bool(qp.H[0].isnan().any())
        equal(qp.ub, [[-1, -1]])

    @pytest.mark.parametrize(
        ("new", "message"),
        [
            ({"Q": [[1.0, 1], [0, 1]]}, r"Q must be symmetric: .* up to 1; pass \(Q \+ Q\.T\) / 2"),
            (
                {"Q": torch.ones(3, 2, 2)},
                r"Q of shape \(3, 2, 2\) has 3 samples but cost has 4; give one for each sample",
            ),
            (
                {"h": torch.ones(1, 3)},
                r"h of shape \(1, 3\) has 1 samples but cost has 4; .* leave out the first dimension",
            ),
            (
                {"Q": np.eye(3)},
                r"Q of shape \(3, 3\) has 3 variables but the problem has 2; expected \(n, n\) or .* n = 2",
            ),
            ({"ub": [1, 2, 3]}, r"ub of shape \(3,\) has 3 variables but the problem has 2"),
            ({"b": [1, 2]}, r"A of shape \(1, 2\) has 1 rows but b of shape \(2,\) has 2 entries"),
            ({"G": [[1, 1]]}, r"G of shape \(1, 2\) has 1 rows but h of shape \(4, 3\) has 3 entries"),
            ({"b": 1.0}, r"b must have shape \(p,\) or per sample \(N, p\); got \(\)"),
            ({"Q": torch.eye(2, dtype=torch.complex64)}, "Q must hold real numbers, got type complex64"),
            ({"Q": torch.empty(2, 2, device="meta")}, "Q is on meta but the problem is on cpu"),
        ],
    )
    def test_bad_override(self, mixed: Problem, new: dict[str, Any], message: str) -> None:
        with pytest.raises(ProblemError, match=message):
            mixed.canonical(torch.zeros(4, 2), **new)

    def test_right_hand_side_without_rows(self) -> None:
        with pytest.raises(ProblemError, match=r"h of shape \(1,\) was given without G"):
            Problem(n=2).canonical(torch.zeros(1, 2), h=[1])


@pytest.mark.parametrize(
    "outputs",
    [(torch.zeros(4, 2), torch.zeros(1, 2)), (torch.zeros(4, 2), (torch.zeros(1, 2), torch.zeros(1, 2)))],
    ids=["GRU", "LSTM"],
)
def test_the_outputs_of_a_network_with_a_state(outputs: Any) -> None:
    with pytest.raises(ProblemError, match=r"^cost .*LSTM also returns its state\), the one with the values$"):
        to_batch_tensor(outputs)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (torch.zeros(2), r"cost must have shape \(B, 2\), one row for each sample; got \(2,\)"),
        (torch.zeros(4, 3), r"cost must have shape \(B, 2\), one row for each sample; got \(4, 3\)"),
        (torch.zeros(1, 4, 2), r"cost must have shape \(B, 2\).*got \(1, 4, 2\)"),
        (np.zeros((4, 2)), r"cost must be a tensor of shape \(B, 2\), got ndarray; use torch\.as_tensor"),
        (torch.zeros(4, 2, dtype=torch.complex64), r"cost must hold real numbers, got type complex64"),
        (
            torch.zeros(3, 2),
            r"cost has 3 samples but the problem has 4; select the same samples with problem\[index\].*keys=",
        ),
        (
            torch.zeros(4, 2, device="meta"),
            r"cost is on meta but the problem is on cpu; bring them together: problem\.to",
        ),
    ],
)
def test_bad_cost(mixed: Problem, cost: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        mixed.canonical(cost)
    with pytest.raises(ProblemError, match=message):
        mixed.objective(torch.zeros(4, 2), cost)


@pytest.mark.parametrize("smoothing", [-0.1, NAN, INF, "auto", None, True, 1j])
def test_bad_smoothing(smoothing: Any) -> None:
    with pytest.raises(ProblemError, match="smoothing must be a finite number, at least 0; got"):
        Problem(n=2).canonical(torch.zeros(1, 2), smoothing=smoothing)
    with pytest.raises(ProblemError, match="smoothing must be a finite number, at least 0; got"):
        Problem(n=2).objective(torch.zeros(1, 2), torch.zeros(1, 2), smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0, 1, 0.5, np.float32(0.5), np.int64(2)])
def test_good_smoothing(smoothing: Any) -> None:
    H = Problem(n=2).canonical(torch.zeros(1, 2), smoothing=smoothing).H
    equal(H, [[[float(smoothing), 0], [0, float(smoothing)]]])


class TestObjective:
    z, cost = tensor([[1, 2], [0, 3]]), tensor([[3, 1], [5, 1]])

    def test_minimise(self) -> None:
        problem = Problem(Q=[[2, 1], [1, 4]])
        equal(problem.objective(self.z, self.cost), [5 + 11, 3 + 18])
        equal(problem.objective(self.z, self.cost, smoothing=2), [16 + 5, 21 + 9])

    def test_maximise_subtracts_smoothing(self) -> None:
        problem = Problem(n=2, sense="max")
        equal(problem.objective(self.z, self.cost), [5, 3])
        equal(problem.objective(self.z, self.cost, smoothing=2), [5 - 5, 3 - 9])

    def test_curvature_given_per_sample_or_shared(self) -> None:
        problem = Problem(Q=np.zeros((2, 2)))
        per_sample = problem.objective(self.z, self.cost, Q=[2 * np.eye(2), 4 * np.eye(2)])
        equal(per_sample, [5 + 5, 3 + 18])
        equal(problem.objective(self.z, self.cost, Q=2 * np.eye(2)), [5 + 5, 3 + 9])

    def test_smooth_term_is_added_as_written(self) -> None:
        phi = Smooth(lambda z: -(z**4).sum(1), lambda z: -4 * z**3, lambda z: torch.diag_embed(-12 * z**2))
        problem = Problem(n=2, sense="max", phi=phi)
        equal(problem.objective(self.z, self.cost), [5 - 17, 3 - 81])

    def test_differentiable_by_everything(self) -> None:
        phi = Smooth(lambda z: (z**4).sum(1), lambda z: 4 * z**3, lambda z: torch.diag_embed(12 * z**2))
        problem = Problem(n=2, phi=phi)
        inputs = [self.z.clone().requires_grad_(), self.cost.clone().requires_grad_(), torch.eye(2, dtype=F64)]
        inputs[2] = inputs[2].expand(2, 2, 2).clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda z, c, Q: problem.objective(z, c, Q=Q, smoothing=0.1), inputs)

    def test_results_in_the_wider_type(self) -> None:
        problem, z, cost = Problem(n=2), self.z.float(), self.cost.float()
        assert problem.objective(z, cost).dtype == torch.float32
        assert problem.objective(z, self.cost).dtype == F64
        assert problem.objective(z.long(), cost.long()).dtype == F64

    def test_empty_batch(self) -> None:
        assert Problem(Q=np.eye(2)).objective(torch.zeros(0, 2), torch.zeros(0, 2)).shape == (0,)

    def test_bad_arguments(self) -> None:
        problem = Problem(n=2)
        with pytest.raises(ProblemError, match=r"z has 1 samples but cost has 2"):
            problem.objective(self.z[:1], self.cost)
        with pytest.raises(ProblemError, match=r"z must have shape \(B, 2\)"):
            problem.objective(self.z[:, :1], self.cost)
        with pytest.raises(ProblemError, match=r"Q of shape \(3, 3\) has 3 variables but the problem has 2"):
            problem.objective(self.z, self.cost, Q=np.eye(3))
        wrong = Problem(n=2, phi=Smooth(torch.sum, torch.ones_like, torch.diag_embed))
        with pytest.raises(
            ProblemError, match=r"Smooth\.value must turn z \(2, 2\) into shape \(2,\); it gave shape \(\)"
        ):
            wrong.objective(self.z, self.cost)


class TestSmooth:
    def test_start_becomes_a_private_float64_tensor(self) -> None:
        start = np.ones(2, dtype=np.float32)
        phi = Smooth(torch.sum, torch.ones_like, torch.diag_embed, start=start)
        start[:] = 5
        equal(phi.start, [1, 1])

    @pytest.mark.parametrize(
        ("start", "message"),
        [
            ([[1.0]], r"Smooth\.start must be one finite point of shape \(n,\), got shape \(1, 1\)$"),
            (
                [1.0, NAN],
                r"Smooth\.start must be one finite point of shape \(n,\), got shape \(2,\) with NaN or infinity",
            ),
            (["a"], r"Smooth\.start must hold real numbers"),
        ],
    )
    def test_bad_start(self, start: Any, message: str) -> None:
        with pytest.raises(ProblemError, match=message):
            Smooth(torch.sum, torch.ones_like, torch.diag_embed, start=start)

    def test_functions_must_be_functions(self) -> None:
        with pytest.raises(ProblemError, match=r"Smooth\.hessian must be a function of a batch z \(B, n\), got int"):
            Smooth(torch.sum, torch.ones_like, 3)  # type: ignore[arg-type]


class TestAsBatch:
    @pytest.mark.parametrize(
        ("cost", "dtype"),
        [
            ([[1, 2], [3, 4]], F64),
            ([[1.0, 2.0], [3.0, 4.0]], F64),
            (np.array([[1, 2], [3, 4]]), F64),
            (np.array([[1.0, 2.0], [3.0, 4.0]]), F64),
            (np.array([[1, 2], [3, 4]], dtype=np.float32), torch.float32),
            (torch.tensor([[1, 2], [3, 4]]), F64),
            (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.float32),
            (tensor([[1, 2], [3, 4]]), F64),
            (torch.tensor([[1, 2], [3, 4]], dtype=torch.float16), torch.float32),
            ([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], torch.float32),
        ],
    )
    def test_kinds(self, cost: Any, dtype: torch.dtype) -> None:
        batch = to_batch_tensor(cost)
        assert batch.dtype == dtype
        assert batch.tolist() == [[1, 2], [3, 4]]

    def test_tensors_are_passed_through_with_their_gradient(self) -> None:
        cost = torch.ones(2, 3, requires_grad=True)
        assert to_batch_tensor(cost) is cost
        row = to_batch_tensor(cost[0])
        assert row.shape == (1, 3)
        assert row.requires_grad

    @pytest.mark.parametrize(
        ("cost", "message"),
        [
            (1.0, r"predicted must have shape \(B, n\), or \(n,\) for a single sample; got \(\)"),
            (np.zeros((1, 2, 3)), r"predicted must have shape \(B, n\).*got \(1, 2, 3\)"),
            (["a"], "predicted must hold real numbers, got type <U1"),
            ([[1], [1, 2]], "predicted cannot be read as an array"),
            (torch.ones(2, dtype=torch.complex64), "predicted must hold real numbers, got type complex64"),
        ],
    )
    def test_bad(self, cost: Any, message: str) -> None:
        with pytest.raises(ProblemError, match=message):
            to_batch_tensor(cost, name="predicted")


def test_a_plan_belongs_to_its_constraints() -> None:
    """Calls on a problem share the plan of a solver; problems with other constraints have their own."""
    problem = Problem(A=[[1.0, 1.0]], b=[1.0], lb=0, ub=[[1.0, 1.0], [2.0, 2.0]])
    cost = torch.zeros(2, 2)
    plan = problem.canonical(cost).plan
    assert problem.canonical(cost, 0.5, Q=torch.eye(2)).plan is plan
    assert problem.relaxed().canonical(cost).plan is plan
    others = [problem.canonical(cost, b=[2.0]), problem[1:].canonical(cost[1:]), problem.canonical(cost)[:1]]
    others += [Problem(n=2).to("cpu").canonical(cost), pickle.loads(pickle.dumps(problem)).canonical(cost)]
    assert all(other.plan is not plan for other in others)
    free = Problem(n=2)
    assert free.to("cpu").canonical(cost).plan is not free.canonical(cost).plan
