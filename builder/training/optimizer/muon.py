"""Muon: the momentum of every matrix is made orthogonal before it is a step; all else goes by AdamW."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Literal, Self

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.optim.adamw import adamw

from builder.component import Config as BaseConfig
from builder.component import refuse
from builder.registry import register
from builder.training.optimizer import Beta, Betas, Optimizer, Part, Rate, Stepper, decay_groups

Scale = Literal["match_rms_adamw", "original"]

_SCALES: dict[Scale, Callable[[int, int], float]] = {
    "match_rms_adamw": lambda d_out, d_in: 0.2 * math.sqrt(max(d_out, d_in)),
    "original": lambda d_out, d_in: math.sqrt(max(1.0, d_out / d_in)),
}
# What becomes of 1 / m, m times the base width, so that the greatest singular value of a step follows sqrt(out / in): c
# itself grows as sqrt(m), or not at all, and a readout's out stays.
_RATES: dict[Scale, dict[Part, Rate]] = {
    "match_rms_adamw": {"map": math.sqrt},
    "original": {"map": lambda factor: 1.0, "readout": math.sqrt},
}
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: the steepest at 0 that leaves singular values near 1
_each: Any = torch  # torch._foreach_*: one kernel for many tensors, where the device has one
_EPS = 1e-7  # the least norm that is divided by
_AT_ONCE = 2**26  # numbers in one batch of products: more gain no speed, and take memory


@register("optimizer", "muon")
class Muon(Optimizer):
    """W <- W - lr (c UV^T + weight_decay W), USV^T being the momentum of W's gradient (Jordan et al. 2024, "Muon").

    UV^T is rough, of a few Newton-Schulz steps: singular values end near 1. Experts that lie in one tensor are made
    orthogonal each by itself. Routers are matrices like any other: Liu et al. (2025, "Muon is scalable for LLM
    training") give Muon every matrix but the tables and the head. Those, scales and biases go by AdamW.

    Where the init scales learning rates (mup), a matrix has the one that keeps the spectral condition, |dW| of
    sqrt(out / in) at every width (Yang, Simon & Bernstein 2023, "A spectral condition for feature learning"): with
    match_rms_adamw lr / sqrt(m) at m times the base width, with original lr itself.
    """

    class Config(BaseConfig):
        """`lr` is the peak that the schedule scales, that of the matrices; `weight_decay` is of everything that decays.

        momentum, nesterov      M <- momentum M + (1 - momentum) g; the step is along M, or with nesterov along
                                momentum M + (1 - momentum) g
        ns_steps                of Newton-Schulz
        scale                   c: match_rms_adamw, 0.2 sqrt(max(out, in)), a step as long as AdamW's, so that its lr
                                fits (Liu et al.); original, sqrt(max(1, out / in)) (Jordan et al.)
        adamw_lr, adamw_betas,  of the rest; adamw_lr None: lr
        adamw_eps
        """

        name: str = "muon"
        lr: PositiveFloat = 1e-3
        momentum: Beta = 0.95
        nesterov: bool = True
        ns_steps: PositiveInt = 5
        weight_decay: NonNegativeFloat = 0.1
        scale: Scale = "match_rms_adamw"
        adamw_lr: PositiveFloat | None = None
        adamw_betas: Betas = (0.9, 0.95)
        adamw_eps: PositiveFloat = 1e-8

        @model_validator(mode="after")
        def _a_rate_fits_what_it_scales(self) -> Self:
            if self.scale == "original" and self.adamw_lr is None:
                rule = "scale=original wants a lr that isn't AdamW's, some 0.02, so the rest needs one of its own"
                refuse("adamw_lr", None, rule, "adamw_lr=1e-3, or scale=match_rms_adamw")
            return self

    @staticmethod
    def build(config: Muon.Config, model: nn.Module) -> torch.optim.Optimizer:
        rest: list[Part] = ["embedding", "head", "other"]
        theirs = {
            "orthogonal": False,
            "lr": config.adamw_lr or config.lr,
            "betas": config.adamw_betas,
            "eps": config.adamw_eps,
            "fused": True,
        }
        groups = decay_groups(
            model, config.weight_decay, dict.fromkeys(rest, theirs), lr=config.lr, rates=_RATES[config.scale]
        )
        ours = {
            "orthogonal": True,
            "momentum": config.momentum,
            "nesterov": config.nesterov,
            "ns_steps": config.ns_steps,
            "scale": config.scale,
        }
        return _Muon([group if "orthogonal" in group else group | ours for group in groups], {})


class _Muon(Stepper):
    """Both kinds of step in one optimizer, so that one thing is stepped, scheduled and checkpointed."""

    def move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if group["orthogonal"]:
            for batch in _batches(parameters):
                self._move_matrices(batch, group)
        else:
            self._move_rest(parameters, group)

    def _move_matrices(self, alike: list[Tensor], group: dict[str, Any]) -> None:
        """Matrices of one shape (out, in), or (X, out, in)."""
        lr, momentum = group["lr"], group["momentum"]
        gradients: list[Any] = [parameter.grad for parameter in alike]
        momenta = self.kept(alike, "momentum")
        _each._foreach_lerp_(momenta, gradients, 1 - momentum)
        ahead = _each._foreach_lerp(gradients, momenta, momentum) if group["nesterov"] else momenta
        steps = orthogonal(torch.stack(list(ahead)), group["ns_steps"])
        shape = alike[0].shape
        scale = _SCALES[group["scale"]](shape[-2], shape[-1])
        _each._foreach_mul_(alike, 1 - lr * group["weight_decay"])
        _each._foreach_add_(alike, list(steps.to(alike[0].dtype).unbind()), alpha=-lr * scale)

    def _move_rest(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            if "step" not in self.state[parameter]:
                self.state[parameter]["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            gradients,
            self.kept(parameters, "exp_avg"),
            self.kept(parameters, "exp_avg_sq"),
            [],
            [self.state[parameter]["step"] for parameter in parameters],
            fused=group["fused"],
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """(..., out, in) -> the same: each matrix USV^T nearly UV^T, by `steps` of Newton-Schulz; zeros stay zeros.

    X <- a X + (b A + c A A) X with A = X X^T, from X of norm 1, wide. On a GPU in bfloat16, which is enough; on a CPU,
    whose products in bfloat16 are slow, in float32 at least.
    """
    dtype = torch.bfloat16 if matrices.is_cuda else torch.promote_types(matrices.dtype, torch.float32)
    d_out, d_in = matrices.shape[-2:]
    x = matrices.reshape(-1, d_out, d_in)  # (N, out, in)
    x = (x.mT if d_out > d_in else x).to(dtype)
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp_min(_EPS)
    a, b, c = _QUINTIC
    for _ in range(steps):
        gram = x @ x.mT  # (N, least, least)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if d_out > d_in else x).view_as(matrices)


def _batches(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters by shape, as many at once as are multiplied faster together than one by one."""
    alike: dict[Any, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        alike[parameter.shape, parameter.dtype, parameter.device].append(parameter)
    for same in alike.values():
        size = max(1, _AT_ONCE // same[0].numel())
        yield from (same[start : start + size] for start in range(0, len(same), size))
