"""``guided_regret``: the regret R plus the guidance F times its strength α, with gradients in closed form.

Let f be the smoothed objective, ĉ the predicted and c the true costs, z* the decision under ĉ, and z° the best decision
under c. F is the suboptimality of z° under the forecast,

    F(ĉ) = f(z°; ĉ) − f(z*; ĉ).

F is convex in ĉ, never negative, and zero only if z° is optimal under the forecast. It is the Fenchel–Young loss of the
smoothed problem. The two decisions of the regret suffice to compute F, because ``R + F = (ĉ − c)ᵀ(z° − z*)``. The
gradient of F is z° − z*. If the decision is a vertex other than z°, the gradient of R is zero and that of F is not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pear.losses.autograd_inputs import fit_gradient_to_input, input_requires_gradient
from pear.losses.second_derivatives import refuse_second_derivatives, save_inputs
from pear.problem.matrix import matvec
from pear.solvers.regret_call import RegretCall, RegretCallResults


def guidance_gap(call: RegretCall, parts: RegretCallResults, sign: int, all_good: bool) -> Tensor:
    """Compute F (B,), the suboptimality of the true best decision under the forecast; zero for failed samples.

    Args:
        call: the inputs of the regrets.
        parts: the regrets.
        sign: 1 for minimisation, −1 for maximisation.
        all_good: whether all samples are solved.
    """
    to_best = parts.best - parts.x
    both = ((call.predicted.double() - call.true.double()) * to_best).sum(1)
    if call.Q is not None:
        change = torch.as_tensor(call.Q).double() - torch.as_tensor(call.true_Q).double()
        change = change if change.dim() == 3 else change[None]
        # ½z°ᵀΔz° − ½z*ᵀΔz*, computed without cancellation
        both = both + 0.5 * (matvec(change, to_best) * (parts.best + parts.x)).sum(1)
    gap = ((both if sign == 1 else -both) - parts.value).clamp(min=0)
    return gap if all_good else torch.where((parts.status == 0) & (parts.true_status == 0), gap, 0.0)


def guided_regret(
    inputs: tuple[Any, Any, Any, Any],
    call: RegretCall,
    parts: RegretCallResults,
    shares: int,
    sign: int,
    all_good: bool,
) -> Tensor:
    """Compute the regret plus guidance, ``R + α F``, in the dtype of the predicted costs.

    F is as in the module, and α is ``call.guidance``. The result is differentiable if an input requires a gradient.

    Args:
        inputs: predicted costs, true costs, predicted curvature and true curvature, which may require gradients.
        call: the same inputs, detached, with the settings of the call.
        parts: the results of the call: regrets, decisions and gradients. If right-hand sides are predicted,
            ``parts.extra`` holds the guidance and the cost of violations, which are added to the regrets.
        shares: the number by which the sum over the samples is divided. With 0 there is no sum, and the result is the
            value of each sample, (B,).
        sign: 1 for minimisation, −1 for maximisation.
        all_good: whether all samples are solved; if not, F is 0 for those that failed.
    """
    if torch.is_grad_enabled() and any(map(input_requires_gradient, inputs)):
        found: Tensor = GuidedRegret.apply(*inputs, call, parts, shares, sign, all_good)
        return found
    return _guided_value(call, parts, shares, sign, all_good)


def _guided_value(call: RegretCall, parts: RegretCallResults, shares: int, sign: int, all_good: bool) -> Tensor:
    """Compute ``R + α F`` without derivatives; the arguments are those of ``guided_regret``."""
    each = parts.value
    if parts.extra is not None:
        each = each + parts.extra
    elif call.guidance > 0:
        each = each + call.guidance * guidance_gap(call, parts, sign, all_good)
    value = each.clone() if shares == 0 else each.sum().div_(shares)
    return value.to(call.predicted.dtype)


class GuidedRegret(torch.autograd.Function):
    """The regret plus guidance, ``R + α F``, as an autograd function with gradients in closed form."""

    @staticmethod
    def forward(
        ctx: Any,
        predicted: Tensor,
        true: Tensor,
        Q: Tensor | None,
        true_Q: Tensor | None,
        call: RegretCall,
        parts: RegretCallResults,
        shares: int,
        sign: int,
        all_good: bool,
    ) -> Tensor:
        """Compute ``R + α F``; the arguments are those of ``guided_regret``."""
        save_inputs(ctx, predicted, true, Q, true_Q)
        ctx.parts, ctx.shares, ctx.sign, ctx.guidance = parts, shares, sign, call.guidance
        ctx.inputs = [None if t is None else (t.dtype, tuple(t.shape)) for t in (predicted, true, Q, true_Q)]
        return _guided_value(call, parts, shares, sign, all_good)

    @staticmethod
    @refuse_second_derivatives
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients with respect to ``predicted``, ``true``, ``Q`` and ``true_Q``.

        ``up`` is the gradient with respect to the result of ``forward``, a scalar or (B,).
        """
        parts, z, best, pull = ctx.parts, ctx.parts.x, ctx.parts.best, ctx.guidance * ctx.sign
        u = up.double()[:, None] if ctx.shares == 0 else up.double() / ctx.shares
        grads: list[Tensor | None] = [None] * 4
        if ctx.needs_input_grad[0] and parts.gradient is not None:
            grads[0] = u * parts.gradient
        elif ctx.needs_input_grad[0]:
            grads[0] = u * (parts.injected + pull * (best - z) if pull else parts.injected)
        if ctx.needs_input_grad[1]:
            grads[1] = u * ctx.sign * (z - best)
        if ctx.needs_input_grad[2]:
            half = 0.5 * (u * parts.exact)[:, :, None] * z[:, None, :]
            grads[2] = half + half.mT
        if ctx.needs_input_grad[3] or (ctx.needs_input_grad[2] and pull):
            outer = z[:, :, None] * z[:, None, :] - best[:, :, None] * best[:, None, :]
            grads[3] = 0.5 * ctx.sign * (u[..., None] * outer)
            grads[2] = grads[2] - ctx.guidance * grads[3] if grads[2] is not None and pull else grads[2]
        wanted = [
            fit_gradient_to_input(grad, *kind) if needed and grad is not None and kind is not None else None
            for grad, kind, needed in zip(grads, ctx.inputs, ctx.needs_input_grad, strict=False)
        ]
        return (*wanted, *[None] * 5)
