"""``Problem``: the optimisation problem as the user writes it, checked once and fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import field_checks
from pear.problem.curvature_checks import check_curvature_sign, symmetrise_curvature
from pear.problem.html_tables import html_table, problem_facts
from pear.problem.matrix import MATRICES, matvec
from pear.problem.problem_fields import (
    drop_huge_bound_fields,
    fill_bound_fields,
    given_fields,
    integer_field_mask,
    is_field_per_sample,
    read_integer_field,
    read_problem_field,
)
from pear.problem.quadratic_program import QuadraticProgram, build_program, keeps_sparse
from pear.problem.sample_index import sample_index
from pear.problem.smooth_term import Smooth, check_phi
from pear.problem.tensor_conversion import (
    ArrayLike,
    check_tensor_size,
    shared_tensor_device,
    to_float64_tensor,
    to_tensor,
)
from pear.setting_checks import check_smoothing_setting

FIELDS = ("Q", "A", "b", "G", "h", "lb", "ub")


class Problem:
    """Minimise or maximise ``½ zᵀQz + cᵀz + φ(z)`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``.

    The cost c is not part of the problem; it comes with each solve. Everything else is fixed here, and checked.
    Fields may be torch tensors (dense or sparse), numpy arrays, scipy sparse matrices or lists. Each is shared by all
    samples or, with a leading dimension N, given per sample; both kinds may be mixed.

    The problem keeps private, detached copies in float64, whatever came in. They are dense, and a dense field may take
    2 GiB, as may the (n, n) curvature (n ≤ 16384); to differentiate by a field, pass it with the call instead.

    Where Q, A or G comes in sparse form, n is at least 500 and the matrices have at most 5 % non-zeros together, the
    problem stays sparse (``is_sparse``): time and memory follow the non-zeros, and n may be 100,000 and more. Sparse
    matrices are shared by all samples, cannot be replaced in a call, and live on the CPU; vectors may differ from
    sample to sample as ever.

    Args:
        Q: (n, n) or (N, n, n), symmetric; positive semidefinite to minimise, negative semidefinite to maximise (the
            objective is maximised as written). What rounding left asymmetric is symmetrised.
        A: (p, n) or (N, p, n) equality rows.
        b: (p,) or (N, p) their right-hand sides.
        G: (m, n) or (N, m, n) inequality rows.
        h: (m,) or (N, m) their right-hand sides; +inf, or 1e20 and more, makes a row absent.
        lb: a number, (n,) or (N, n) lower bounds; -inf, −1e20 and less, or None where there is none.
        ub: a number, (n,) or (N, n) upper bounds; inf, 1e20 and more, or None where there is none.
        sense: "min" or "max".
        integer: None, True (all variables), a bool mask (n,), or a list of indices.
        n: number of variables; needed only where no field tells it.
        phi: a ``Smooth`` term, convex to minimise and concave to maximise.

    Attributes:
        Q, A, b, G, h, lb, ub: float64 tensors in the shapes above (bounds never scalar), or None. Do not write to them.
            Q, A and G of a sparse problem are ``SparseMatrix`` objects; their attribute ``csr`` is SciPy's.
        integer: (n,) bool, or None.
        sense, n, phi: as given.
        batch: N, or None where all fields are shared.
        dtype: type of results where the inputs have no floating type of their own; see ``to``.
        device: the device of the data.
        is_sparse: True where the matrices are kept sparse.

    Example:
        >>> from pear.problem import Problem
        >>> Problem(G=[[2, 3, 1]], h=[4], lb=0, ub=1, sense="max", integer=True)
        Problem(max, n=3, 1 inequality, bounds, 3 integer)
    """

    Q: Tensor | None
    A: Tensor | None
    b: Tensor | None
    G: Tensor | None
    h: Tensor | None
    lb: Tensor | None
    ub: Tensor | None
    sense: str
    integer: Tensor | None
    n: int
    phi: Smooth | None
    batch: int | None
    dtype: torch.dtype
    device: torch.device
    is_sparse: bool
    _plans: dict[str, Any]

    has_program = True
    """False for an ``Oracle``, which is a function from costs to decisions and has no constraints of its own."""

    __iter__ = None  # a shared problem returns itself at any index, so that a loop over it would never end

    def __init__(
        self,
        Q: ArrayLike = None,
        A: ArrayLike = None,
        b: ArrayLike = None,
        G: ArrayLike = None,
        h: ArrayLike = None,
        lb: ArrayLike = None,
        ub: ArrayLike = None,
        sense: str = "min",
        integer: ArrayLike = None,
        n: int | None = None,
        phi: Smooth | None = None,
    ) -> None:
        given = given_fields(Q=Q, A=A, b=b, G=G, h=h, lb=lb, ub=ub)
        field_checks.check_sense(sense)
        device = shared_tensor_device(given)
        sparse = keeps_sparse(given, n, smooth=phi is not None)
        fields: dict[str, Any] = {
            name: read_problem_field(name, value, sparse).to(device) for name, value in given.items()
        }
        field_checks.check_dimensions(fields)
        marks = read_integer_field(integer)
        size = field_checks.infer_n(fields, marks, n)
        if not sparse:
            check_tensor_size("the curvature H", (size, size))
        fields = {**fields, **fill_bound_fields(fields, size)}
        field_checks.check_rows(fields)
        batch = field_checks.infer_batch(fields)
        field_checks.check_values(fields)
        field_checks.check_bounds(fields)
        field_checks.report_huge_bounds(fields)
        fields = drop_huge_bound_fields(fields)
        if "Q" in fields:
            fields["Q"] = symmetrise_curvature(fields["Q"], Q)
            check_curvature_sign(fields["Q"], sense)
        self.__dict__.update(
            {name: fields.get(name) for name in FIELDS},
            sense=sense,
            integer=integer_field_mask(marks, size, device),
            n=size,
            phi=None if phi is None else check_phi(phi, size).to(device),
            batch=batch,
            dtype=torch.float64,
            device=device,
            is_sparse=sparse,
            _plans={},
        )

    @property
    def sign(self) -> int:
        """+1 to minimise, -1 to maximise."""
        return 1 if self.sense == "min" else -1

    @property
    def is_integer(self) -> bool:
        """True where some variable must be an integer."""
        return self.integer is not None

    @property
    def is_curved(self) -> bool:
        """True where the objective has curvature of its own, from φ or from a Q that is not zero."""
        return self.phi is not None or (self.Q is not None and bool(self.Q.any()))

    def relaxed(self) -> Problem:
        """The same problem with every variable continuous.

        Example:
            >>> Problem(lb=0, ub=1, n=3, integer=True).relaxed()
            Problem(min, n=3, bounds)
        """
        return self._with(integer=None) if self.is_integer else self

    def to(self, device: torch.device | str | torch.dtype | None = None, dtype: torch.dtype | None = None) -> Problem:
        """The same problem on another device, or with another type for its results.

        The data stays float64 inside. ``dtype`` (float32 or float64) is kept as ``problem.dtype``: the type in
        which results come back where the inputs have no floating type of their own (lists, integers).

        Example:
            >>> Problem(n=2).to(dtype=torch.float32).dtype
            torch.float32
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        if dtype not in (None, torch.float32, torch.float64):
            raise ProblemError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        home = self.device if device is None else torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        if self.is_sparse and home.type != "cpu":
            raise ProblemError(
                f"a sparse problem lives on the CPU and cannot go to {home}; "
                "pass Q, A and G as dense arrays where they fit"
            )
        parts = {"integer": self.integer, "phi": self.phi, **self._fields()}
        moved = {name: None if part is None else part.to(home) for name, part in parts.items()}
        return self._with(**moved, device=home, dtype=dtype or self.dtype)

    def __getitem__(self, index: Any) -> Problem:
        """The samples at ``index``: an int, a slice, a list or tensor of ints, or a bool mask (N,).

        Shared fields stay shared; fields given per sample are indexed. An int gives a batch of one. A problem whose
        fields are all shared is the same for every sample and returns itself, whatever the index.

        Example:
            >>> Problem(lb=0, ub=[[1, 2], [3, 4], [5, 6]])[1:].ub
            tensor([[3., 4.],
                    [5., 6.]], dtype=torch.float64)
        """
        if self.batch is None:
            return self
        rows = sample_index(index, self.batch, self.device)
        taken = {name: v[rows] for name, v in self._fields().items() if is_field_per_sample(name, v)}
        return self._with(**taken, batch=len(next(iter(taken.values()))))

    def canonical(
        self,
        cost: Tensor,
        smoothing: float = 0.0,
        Q: ArrayLike = None,
        A: ArrayLike = None,
        b: ArrayLike = None,
        G: ArrayLike = None,
        h: ArrayLike = None,
        lb: ArrayLike = None,
        ub: ArrayLike = None,
    ) -> QuadraticProgram:
        """The batch ``min ½ zᵀHz + s·cᵀz`` with ``H = s·Q + smoothing·I`` and s = ``sign``, detached, in float64.

        φ is not in H. Fields given here replace the problem's in this call, in the user's own sense. They may be
        predictions, so that only shapes and the symmetry of Q are checked: NaN, crossed bounds or a wrong curvature
        concern single samples, whose status a solve reports.

        Args:
            cost: (B, n) tensor on the problem's device.
            smoothing: λ ≥ 0.
            Q: (n, n) or (B, n, n).
            A: (p, n) or (B, p, n).
            b: (p,) or (B, p).
            G: (m, n) or (B, m, n).
            h: (m,) or (B, m).
            lb: a number, (n,) or (B, n).
            ub: a number, (n,) or (B, n).

        Example:
            >>> qp = Problem(lb=0, ub=1, n=2, sense="max").canonical(torch.tensor([[1.0, -2.0]]), smoothing=0.5)
            >>> qp.c.tolist(), qp.H.tolist()
            ([[-1.0, 2.0]], [[[0.5, 0.0], [0.0, 0.5]]])
        """
        check_smoothing_setting(smoothing, automatic=False)
        fields = self.checked(cost, Q=Q, A=A, b=b, G=G, h=h, lb=lb, ub=ub)
        # a plan is about the constraints; of a sparse problem about its matrices, which a call cannot replace
        own = self.is_sparse or all(value is None for value in (A, b, G, h, lb, ub))
        plans = self._plans if own else {}
        return build_program(fields, cost, self.sign, float(smoothing), self.integer, plans, self.is_sparse)

    def prepare_once(self, name: str, prepare: Callable[[Problem], Any]) -> Any:
        """The result of ``prepare(self)``, computed once and kept with the plans of a dense problem under ``name``."""
        if name not in self._plans:
            self._plans[name] = prepare(self)
        return self._plans[name]

    def checked(self, cost: Tensor, **overrides: ArrayLike) -> dict[str, Tensor]:
        """The fields of one call, in the user's own sense: the problem's own and the overrides, checked with the cost.

        Args:
            cost: (B, n) tensor on the problem's device.
            **overrides: as for ``canonical``; None where there is none.
        """
        fields = self._fields() | self._overrides(cost, given_fields(**overrides))
        field_checks.check_rows(fields)
        return fields

    def objective(self, z: Tensor, cost: Tensor, Q: ArrayLike = None, smoothing: float = 0.0) -> Tensor:
        """``½ zᵀQz + cᵀz + φ(z) ± ½ smoothing ‖z‖²`` in the user's own sense: + to minimise, − to maximise.

        Differentiable by z, cost and Q. Computed in float64, returned in the wider type of z and cost.

        Args:
            z: (B, n) decisions.
            cost: (B, n).
            Q: replaces the problem's, (n, n) or (B, n, n).
            smoothing: λ ≥ 0.

        Returns:
            (B,).

        Example:
            >>> z, cost = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 1.0]])
            >>> Problem(n=2, sense="max").objective(z, cost, smoothing=2.0)
            tensor([0.])
        """
        check_smoothing_setting(smoothing, automatic=False)
        shared_tensor_device({"z": z, "cost": cost, "Q": Q}, home=("the problem", self.device))
        if self.is_sparse:
            _refuse_matrices(given_fields(Q=Q))
        curvature = {} if Q is None else {"Q": to_tensor("Q", Q).to(self.device, torch.float64)}
        field_checks.check_dimensions(curvature)
        field_checks.check_columns(curvature, self.n)
        field_checks.check_cost(cost, self.n, self.batch, curvature)
        field_checks.check_cost(z, self.n, len(cost), {}, name="z", other="cost")
        wide = torch.promote_types(z.dtype, cost.dtype)
        z, cost = z.to(torch.float64), cost.to(torch.float64)
        value = (cost * z).sum(1)
        Q = curvature.get("Q", self.Q)
        if Q is not None:
            value = value + 0.5 * (matvec(Q if Q.ndim == 3 else Q.unsqueeze(0), z) * z).sum(1)
        if smoothing:
            value = value + self.sign * 0.5 * float(smoothing) * z.square().sum(1)
        if self.phi is not None:
            value = value + self.phi.checked_value(z)
        return value.to(wide if wide.is_floating_point else torch.float64)

    def __repr__(self) -> str:
        p, m = (0 if rhs is None else rhs.shape[-1] for rhs in (self.b, self.h))
        parts = [
            f"{self.sense}, n={self.n}",
            self.Q is not None and "quadratic",
            self.phi is not None and "smooth term",
            p > 0 and f"{p} equalit{'y' if p == 1 else 'ies'}",
            m > 0 and f"{m} inequalit{'y' if m == 1 else 'ies'}",
            (self.lb is not None or self.ub is not None) and "bounds",
            self.integer is not None and f"{int(self.integer.sum())} integer",
            self.batch is not None and f"batch of {self.batch}",
            self.is_sparse and "sparse",
            self.device.type != "cpu" and f"on {self.device}",
        ]
        return f"Problem({', '.join(part for part in parts if part)})"

    def _repr_html_(self) -> str:
        return html_table("Problem", problem_facts(self))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"a Problem cannot be changed (nor its {name}); make a new one, or pass it with the call")

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    def _fields(self) -> dict[str, Tensor]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def _with(self, **changes: Any) -> Problem:
        """A copy with some attributes changed; nothing is checked again."""
        other = object.__new__(type(self))
        stale = not self.is_sparse and changes.keys() & {*FIELDS, "device"}  # plans are about constraints, on a device
        plans: dict[str, Any] = {"_plans": {}} if stale else {}
        other.__dict__.update(self.__dict__ | plans, **changes)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without the plans, which are computed again where they are needed."""
        return {**self.__dict__, "_plans": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _overrides(self, cost: Tensor, given: dict[str, ArrayLike]) -> dict[str, Tensor]:
        """Check the fields that one call overrides, together with its cost, and return them as float64 tensors."""
        shared_tensor_device({"cost": cost, **given}, home=("the problem", self.device))
        if self.is_sparse:
            _refuse_matrices(given)
        fields = {name: to_float64_tensor(name, value, copy=False).to(self.device) for name, value in given.items()}
        field_checks.check_dimensions(fields)
        fields = drop_huge_bound_fields(fill_bound_fields(fields, self.n))
        field_checks.check_columns(fields, self.n)
        field_checks.check_cost(cost, self.n, self.batch, fields)
        if "Q" in fields:
            fields["Q"] = symmetrise_curvature(fields["Q"], given["Q"])
        return fields


def _refuse_matrices(given: dict[str, ArrayLike]) -> None:
    """Raise where a call replaces a matrix of a sparse problem: these are analysed once."""
    for name in MATRICES:
        if name in given:
            raise ProblemError(
                f"{name} was given with a call, but the matrices of a sparse problem are fixed; make another "
                f"pear.Problem with this {name}, or a dense one (n below 500, or dense arrays) to predict it"
            )
