"""``guided_regret``: the regret R plus the guidance F times its strength α, with gradients in closed form.

Let f be the smoothed objective, ĉ the predicted and c the true costs, z* the decision under ĉ, and z° the best decision
under c. R is the suboptimality of z* under the true costs, and F that of z° under the forecast,

    R(ĉ) = f(z*; c) − f(z°; c),    F(ĉ) = f(z°; ĉ) − f(z*; ĉ).

F is convex in ĉ, never negative, and zero only if z° is optimal under the forecast. It is the Fenchel–Young loss of the
smoothed problem. The two decisions of the regret suffice to compute F, because ``R + F = (ĉ − c)ᵀ(z° − z*)``. The
gradient of F is z° − z*. If the decision is a vertex other than z°, the gradient of R is zero and that of F is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.losses.autograd_inputs import fit_gradient_to_input, input_requires_gradient, to_dtype
from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs
from pear.problem.matrix import matvec
from pear.solvers.regret_call import RegretCall, RegretCallResults


class GuidedCall(NamedTuple):
    """A call that computes the regrets of a batch, its results, and how they are summed.

    Attributes:
        call: the inputs of the regrets, detached, with the settings of the call.
        parts: the results: regrets, decisions and gradients. If right-hand sides are predicted, ``parts.extra`` holds
            the guidance and the cost of violations, which are added to the regrets.
        shares: the number by which the sum over the samples is divided. With 0 there is no sum, and the result is the
            value of each sample, (B,).
        sign: 1 for minimisation, −1 for maximisation.
        all_good: whether all samples are solved; if not, F is 0 for those that failed.
    """

    call: RegretCall
    parts: RegretCallResults
    shares: int
    sign: int
    all_good: bool


def guidance_gap(given: GuidedCall) -> Tensor:
    """Compute F (B,), the suboptimality of the true best decision under the forecast; zero for failed samples."""
    call, parts = given.call, given.parts
    to_best = parts.best - parts.x
    both = ((call.predicted.double() - call.true.double()) * to_best).sum(1)
    if call.Q is not None:
        change = torch.as_tensor(call.Q).double() - torch.as_tensor(call.true_Q).double()
        change = change if change.dim() == 3 else change[None]
        # ½z°ᵀΔz° − ½z*ᵀΔz*, computed without cancellation
        both = both + 0.5 * (matvec(change, to_best) * (parts.best + parts.x)).sum(1)
    gap = ((both if given.sign == 1 else -both) - parts.value).clamp(min=0)
    return gap if given.all_good else torch.where((parts.status == 0) & (parts.true_status == 0), gap, 0.0)


def guided_regret(inputs: tuple[Any, Any, Any, Any], given: GuidedCall) -> Tensor:
    """Compute the regret plus guidance, ``R + α F``, in the dtype of the predicted costs.

    The module defines R and F, and α is ``call.guidance``. The result is differentiable if an input requires a
    gradient.

    Args:
        inputs: predicted costs, true costs, predicted curvature and true curvature, which may require gradients.
        given: the call with these inputs, and its results.
    """
    if torch.is_grad_enabled() and any(map(input_requires_gradient, inputs)):
        found: Tensor = GuidedRegret.apply(*inputs, given)
        return found
    return _guided_value(given)


def _guided_value(given: GuidedCall) -> Tensor:
    """Compute ``R + α F``, as defined in the module, without derivatives."""
    call, parts, shares, each = given.call, given.parts, given.shares, given.parts.value
    if parts.extra is not None:
        each = each + parts.extra
    elif call.guidance > 0:
        each = each + call.guidance * guidance_gap(given)
    value = each.clone() if shares == 0 else each.sum()
    return to_dtype(value.div_(shares) if shares > 1 else value, call.predicted.dtype)


class GuidedRegret(torch.autograd.Function):
    """The regret plus guidance, ``R + α F``, as an autograd function with gradients in closed form."""

    @staticmethod
    def forward(
        ctx: Any,
        predicted: Tensor,
        true: Tensor,
        Q: Tensor | None,
        true_Q: Tensor | None,
        given: GuidedCall,
    ) -> Tensor:
        """Compute ``R + α F``. The first four arguments are the ``inputs`` of ``guided_regret``."""
        save_inputs(ctx, predicted, true, Q, true_Q)
        ctx.given = given
        ctx.inputs = [None if t is None else (t.dtype, t.shape) for t in (predicted, true, Q, true_Q)]
        return _guided_value(given)

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients with respect to ``predicted``, ``true``, ``Q`` and ``true_Q``.

        ``up`` is the gradient with respect to the result of ``forward``, a scalar or (B,).
        """
        call, parts, shares, sign, _ = ctx.given
        z, best, pull, u = parts.x, parts.best, call.guidance * sign, up.double()
        u = u[:, None] if shares == 0 else u / shares if shares > 1 else u
        by_predicted, by_true, by_Q, by_true_Q, _ = ctx.needs_input_grad
        grads: dict[int, Tensor] = {}  # by the position of the input
        if by_predicted and parts.gradient is not None:
            grads[0] = u * parts.gradient
        elif by_predicted:
            grads[0] = u * (parts.injected + pull * (best - z) if pull else parts.injected)
        if by_true:
            grads[1] = u * sign * (z - best)
        if by_Q:
            half = 0.5 * (u * parts.exact)[:, :, None] * z[:, None, :]
            grads[2] = half + half.mT
        if by_true_Q or (by_Q and pull):
            outer = z[:, :, None] * z[:, None, :] - best[:, :, None] * best[:, None, :]
            change = 0.5 * sign * (u[..., None] * outer)
            if by_Q and pull:
                grads[2] = grads[2] - call.guidance * change
            if by_true_Q:
                grads[3] = change
        wanted: list[Tensor | None] = [None] * 5
        for i, grad in grads.items():
            wanted[i] = fit_gradient_to_input(grad, *ctx.inputs[i])
        return tuple(wanted)
