"""``Problem``: the optimisation problem as the user writes it, checked once and never changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import field_checks
from pear.problem.curvature_checks import check_curvature_sign, check_curvature_symmetry
from pear.problem.html_tables import html_table, problem_html_facts
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
from pear.problem.quadratic_program import QuadraticProgram, build_quadratic_program, keeps_quadratic_program_sparse
from pear.problem.sample_index import sample_index
from pear.problem.smooth_term import Smooth, check_smooth_term
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
    """The problem to minimise or maximise ``½ zᵀQz + cᵀz + φ(z)`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``.

    The cost c is not part of the problem; each solve is called with a cost. Everything else is checked and fixed here.
    Fields may be torch tensors (dense or sparse), numpy arrays, scipy sparse matrices or lists. All samples share a
    field, unless the field has a leading dimension N, with one entry per sample. Both kinds of fields may be mixed.

    The problem makes private, detached copies of its fields in float64. To differentiate with respect to a field, pass
    the field with the call instead. A dense field, and the (n, n) curvature of a dense problem, may have at most 2 GiB,
    so that n ≤ 16384.

    The problem is sparse (``is_sparse``) if Q, A or G is passed in sparse form, n is at least 500, and at most 5 % of
    the entries of the matrices together are not zero. A problem without matrices is sparse if n > 16384. The time and
    memory of a sparse problem grow with the number of non-zeros, and n may be 100,000 and more. All samples share
    sparse matrices, a call cannot replace them, and they stay on the CPU; b, h, lb and ub may differ between samples.

    Args:
        Q: (n, n) or (N, n, n), symmetric up to rounding; positive semidefinite to minimise, negative semidefinite to
            maximise.
        A: (p, n) or (N, p, n) coefficients of p equalities.
        b: (p,) or (N, p) right-hand sides of equalities.
        G: (m, n) or (N, m, n) coefficients of m inequalities.
        h: (m,) or (N, m) right-hand sides of inequalities; inf, or 1e20 and more, means no limit.
        lb: a number, (n,) or (N, n) lower bounds; -inf, or −1e20 and less, means no bound.
        ub: a number, (n,) or (N, n) upper bounds; inf, or 1e20 and more, means no bound.
        sense: "min" or "max".
        integer: the integer variables: None for none, True for all, a bool mask (n,), or a list of indices.
        n: the number of variables; needed only if no field tells it.
        phi: a ``Smooth`` term, convex to minimise and concave to maximise.

    Attributes:
        Q, A, b, G, h, lb, ub: float64 tensors in the shapes above, but bounds are never scalar; None for an absent
            field. Do not write to them. Q, A and G of a sparse problem are ``SparseMatrix`` objects, whose attribute
            ``csr`` is SciPy's matrix.
        integer: (n,) bool, True for integer variables; None if all are continuous.
        sense, phi: as given.
        n: the number of variables.
        batch: the number N of samples; None if all samples share all fields.
        dtype: the type of the results of a call whose inputs are all lists of numbers or integer arrays; by default
            float64. ``to`` changes it.
        device: the device of the data.
        is_sparse: True if the problem is sparse.

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
    """False for an ``Oracle``, which is a function from costs to decisions and has no constraints."""

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
        sparse = keeps_quadratic_program_sparse(given, n, smooth=phi is not None)
        fields: dict[str, Any] = {
            name: read_problem_field(name, value, sparse).to(device) for name, value in given.items()
        }
        field_checks.check_field_dimensions(fields)
        marks = read_integer_field(integer)
        size = field_checks.infer_n_from_fields(fields, marks, n)
        if not sparse:
            check_tensor_size("the curvature H", (size, size))
        fields = {**fields, **fill_bound_fields(fields, size)}
        field_checks.check_field_rows(fields)
        batch = field_checks.infer_batch_from_fields(fields)
        field_checks.check_field_values(fields)
        field_checks.check_bound_fields(fields)
        field_checks.warn_of_huge_bound_fields(fields)
        fields = drop_huge_bound_fields(fields)
        if "Q" in fields:
            fields["Q"] = check_curvature_symmetry(fields["Q"], Q)
            check_curvature_sign(fields["Q"], sense)
        self.__dict__.update(
            {name: fields.get(name) for name in FIELDS},
            sense=sense,
            integer=integer_field_mask(marks, size, device),
            n=size,
            phi=None if phi is None else check_smooth_term(phi, size).to(device),
            batch=batch,
            dtype=torch.float64,
            device=device,
            is_sparse=sparse,
            _plans={},
        )

    @property
    def sign(self) -> int:
        """1 if the problem minimises, −1 if it maximises."""
        return 1 if self.sense == "min" else -1

    @property
    def is_integer(self) -> bool:
        """True if some variable must be an integer."""
        return self.integer is not None

    @property
    def is_curved(self) -> bool:
        """True if the objective has a smooth term φ or a Q that is not zero."""
        return self.phi is not None or (self.Q is not None and bool(self.Q.any()))

    def relaxed(self) -> Problem:
        """Return the same problem with every variable continuous.

        Example:
            >>> Problem(lb=0, ub=1, n=3, integer=True).relaxed()
            Problem(min, n=3, bounds)
        """
        return self._with(integer=None) if self.is_integer else self

    def to(self, device: torch.device | str | torch.dtype | None = None, dtype: torch.dtype | None = None) -> Problem:
        """Return the same problem on another device, or with another type for its results.

        Args:
            device: the device; None keeps the device of the problem.
            dtype: float32 or float64, the type of results if every input is a list of numbers or an integer array. The
                data of the problem stays float64. May also be passed in place of ``device``.

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
        """Return the problem of the samples at ``index``: an int, a slice, a list or tensor of ints, or a bool mask.

        Shared fields stay shared, and fields with one entry per sample are indexed. An int gives a batch of one. A
        problem whose fields are all shared is the same for every sample, and returns itself for any index.

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
        """Return the batch of programs ``min ½ zᵀHz + s·cᵀz`` with ``H = s·Q + λI`` and s = ``sign``.

        The constraints are those of the problem. The smooth term φ is left out. The result is detached and in float64.
        A field that is passed here replaces the problem's field, and has the signs of the user's problem. Such fields
        may be predictions, so that only shapes and the symmetry of Q are checked. A sample with NaN, crossed bounds or
        a curvature of the wrong sign gets a status from the solve.

        Args:
            cost: (B, n) tensor on the problem's device.
            smoothing: λ ≥ 0.
            Q: (n, n) or (B, n, n) curvature.
            A: (p, n) or (B, p, n) coefficients of equalities.
            b: (p,) or (B, p) right-hand sides of equalities.
            G: (m, n) or (B, m, n) coefficients of inequalities.
            h: (m,) or (B, m) right-hand sides of inequalities.
            lb: a number, (n,) or (B, n) lower bounds.
            ub: a number, (n,) or (B, n) upper bounds.

        Example:
            >>> qp = Problem(lb=0, ub=1, n=2, sense="max").canonical(torch.tensor([[1.0, -2.0]]), smoothing=0.5)
            >>> qp.c.tolist(), qp.H.tolist()
            ([[-1.0, 2.0]], [[[0.5, 0.0], [0.0, 0.5]]])
        """
        check_smoothing_setting(smoothing, automatic=False)
        fields = self.checked(cost, Q=Q, A=A, b=b, G=G, h=h, lb=lb, ub=ub)
        # a plan depends on the constraints, and of a sparse problem on its matrices, which a call cannot replace
        own = self.is_sparse or all(value is None for value in (A, b, G, h, lb, ub))
        plans = self._plans if own else {}
        return build_quadratic_program(fields, cost, self.sign, float(smoothing), self.integer, plans, self.is_sparse)

    def prepare_once(self, name: str, prepare: Callable[[Problem], Any]) -> Any:
        """Return ``prepare(self)``, which is computed once and then stored in the problem under ``name``."""
        if name not in self._plans:
            self._plans[name] = prepare(self)
        return self._plans[name]

    def checked(self, cost: Tensor, **overrides: ArrayLike) -> dict[str, Tensor]:
        """Return the fields for one call, by name, after a check of the cost and of the fields that the call passes.

        Args:
            cost: (B, n) tensor on the problem's device.
            **overrides: fields that replace those of the problem, as for ``canonical``; None keeps the problem's.
        """
        fields = self._fields() | self._overrides(cost, given_fields(**overrides))
        field_checks.check_field_rows(fields)
        return fields

    def objective(self, z: Tensor, cost: Tensor, Q: ArrayLike = None, smoothing: float = 0.0) -> Tensor:
        """Compute the objective ``½ zᵀQz + cᵀz + φ(z) ± ½ λ‖z‖²``, with + to minimise and − to maximise.

        The result is differentiable with respect to z, cost and Q. It is computed in float64, and returned in the wider
        type of z and cost.

        Args:
            z: (B, n) decisions.
            cost: (B, n) costs c.
            Q: (n, n) or (B, n, n), in place of the problem's Q.
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
            self._refuse_matrices(given_fields(Q=Q))
        curvature = {} if Q is None else {"Q": to_tensor("Q", Q).to(self.device, torch.float64)}
        field_checks.check_field_dimensions(curvature)
        field_checks.check_field_columns(curvature, self.n)
        field_checks.check_cost_and_fields(cost, self.n, self.batch, curvature)
        field_checks.check_cost_and_fields(z, self.n, len(cost), {}, name="z", other="cost")
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
        return html_table("Problem", problem_html_facts(self))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"a Problem cannot be changed (nor its {name}); make a new one, or pass it with the call")

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    def _fields(self) -> dict[str, Tensor]:
        """Return the fields that are not None, by name."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def _with(self, **changes: Any) -> Problem:
        """Return a copy with some attributes changed. The new values are not checked."""
        other = object.__new__(type(self))
        stale = not self.is_sparse and changes.keys() & {*FIELDS, "device"}  # plans depend on constraints and device
        plans: dict[str, Any] = {"_plans": {}} if stale else {}
        other.__dict__.update(self.__dict__ | plans, **changes)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the data that solvers prepared, which are computed again when needed."""
        return {**self.__dict__, "_plans": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _overrides(self, cost: Tensor, given: dict[str, ArrayLike]) -> dict[str, Tensor]:
        """Return the fields that a call passes, by name in float64, after a check of the cost and the fields."""
        shared_tensor_device({"cost": cost, **given}, home=("the problem", self.device))
        if self.is_sparse:
            self._refuse_matrices(given)
        fields = {name: to_float64_tensor(name, value, copy=False).to(self.device) for name, value in given.items()}
        field_checks.check_field_dimensions(fields)
        fields = drop_huge_bound_fields(fill_bound_fields(fields, self.n))
        field_checks.check_field_columns(fields, self.n)
        field_checks.check_cost_and_fields(cost, self.n, self.batch, fields)
        if "Q" in fields:
            fields["Q"] = check_curvature_symmetry(fields["Q"], given["Q"])
        return fields

    @staticmethod
    def _refuse_matrices(given: dict[str, ArrayLike]) -> None:
        """Raise ProblemError if ``given``, the fields that a call passes to a sparse problem, holds Q, A or G."""
        for name in MATRICES:
            if name in given:
                raise ProblemError(
                    f"{name} was given with a call, but the matrices of a sparse problem are fixed; make another "
                    f"pear.Problem with this {name}, or a dense one (n below 500, or dense arrays) to predict it"
                )
