"""The linear time-invariant state-space model of chapter 3.10, diagonal, discretised, and computed as a convolution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site, refuse
from builder.components.ssm import SSM, decays
from builder.finding import Finding, Status
from builder.model.compact import Compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.precision import own_dtype
from builder.model.row_state import RowState
from builder.model.scan import scan
from builder.registry import register


@register("ssm", "s4d")
class S4D(SSM):
    """h' = A h + x, y = C h + D x for each channel, A diagonal (chapter 3.10; Gu et al. 2022, "S4D").

        zoh         a = exp(dt A),  b = (a - 1) / A                     x held for a step dt: exact
        bilinear    a = (1 + dt A / 2) / (1 - dt A / 2),  b = dt / (1 - dt A / 2)

    Then h_t = a h_{t-1} + b x_t, or at once y = K * x with K_l = C a^l b. In a diagonal model B and C are felt as their
    product alone, so B is 1. Complex rates come in conjugate pairs, of which one is kept: y = 2 Re(C h) + D x.

        x --> y (D channels) --gelu--> output (D)

    The state holds D N numbers a row, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of a time-invariant layer.

        d_state         numbers in the state of a channel, N: as many real rates, or half as many complex ones
        rates           complex: A_n = -1/2 + i pi n at first (S4D-Lin); real: A_n = -(n + 1) (S4D-Real)
        discretisation  zoh or bilinear
        trained         by a convolution through Fourier space, or by a scan, which packed documents take in any case
        dt_min          the steps lie between these two at first
        dt_max
        """

        name: str = "s4d"
        d_state: PositiveInt = 64
        rates: Literal["complex", "real"] = "complex"
        discretisation: Literal["zoh", "bilinear"] = "zoh"
        trained: Literal["convolution", "scan"] = "convolution"
        dt_min: PositiveFloat = 1e-3
        dt_max: PositiveFloat = 0.1

        @model_validator(mode="after")
        def _knobs_fit_together(self) -> Self:
            if self.dt_min >= self.dt_max:
                refuse("dt_min", self.dt_min, f"less than dt_max={self.dt_max:g}", "dt_min=0.001 dt_max=0.1")
            if self.rates == "complex" and self.d_state % 2:
                rule = "a complex rate takes two numbers of a state"
                refuse("d_state", self.d_state, rule, f"d_state={self.d_state + 1}, or rates=real")
            return self

        @property
        def kept(self) -> int:
            """How many rates a channel has, of a conjugate pair one."""
            return self.d_state // 2 if self.rates == "complex" else self.d_state

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"d_state": min(self.d_state, 6)})

    def __init__(self, config: S4D.Config, site: Site):
        super().__init__()
        self.size, self.least, self.most = config.kept, config.dt_min, config.dt_max
        self.bilinear, self.convolves = config.discretisation == "bilinear", config.trained == "convolution"
        width, paired = site.d_model, config.rates == "complex"
        self.roles = dict.fromkeys(("log_dt", "a_log", "a_im", "c", "d"), "own")
        self.log_dt = nn.Parameter(torch.empty(width))  # (D,), dt = exp(log_dt)
        self.a_log = nn.Parameter(torch.empty(width, self.size))  # (D, N), the real part of A is -exp(a_log)
        self.a_im = nn.Parameter(torch.empty(width, self.size)) if paired else None  # (D, N)
        self.c = nn.Parameter(torch.empty(width, self.size, 2 if paired else 1))  # real and imaginary part
        self.d = nn.Parameter(torch.empty(width))  # (D,)
        self.output = Linear(width, site.d_model, role="residual")
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Rates as `rates` says, steps log-uniform, C from N(0, 1), and the input passes by unchanged."""
        order = torch.arange(self.size, device=self.a_log.device)
        if self.a_im is None:
            self.a_log.copy_((order + 1).log())
        else:
            self.a_log.fill_(math.log(0.5))
            self.a_im.copy_(math.pi * order)
        self.log_dt.uniform_(math.log(self.least), math.log(self.most), generator=generator)
        self.c.normal_(0.0, self.c.shape[-1] ** -0.5, generator=generator)
        self.d.fill_(1.0)

    def discrete(self) -> tuple[Tensor, Tensor]:
        """a and b of h_t = a h_{t-1} + b x_t, (D, N), in float32 or wider."""
        rates, dt = decays(self.a_log), self.log_dt.to(torch.promote_types(self.log_dt.dtype, torch.float32)).exp()
        rates = rates if self.a_im is None else torch.complex(rates, self.a_im.to(rates.dtype))
        dt = dt[:, None]  # (D, 1)
        if self.bilinear:
            below = 1 - dt * rates / 2
            return (1 + dt * rates / 2) / below, dt / below
        a = (dt * rates).exp()
        return a, (a - 1) / rates

    def read_out(self) -> Tensor:
        """C (D, N), twice where it stands for a pair of conjugates."""
        c = self.c.to(torch.promote_types(self.c.dtype, torch.float32))
        return c[..., 0] if self.a_im is None else 2 * torch.view_as_complex(c.contiguous())

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        with own_dtype(x):
            through = self._convolved if self.convolves and state is None and row.starts is None else self._stepped
            y = torch.addcmul(through(x.to(wide), row, state), x.to(wide), self.d.to(wide))  # (B, T, D)
        return self.output(F.gelu(y).to(x.dtype))

    def _convolved(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        (a, b), length = self.discrete(), x.shape[1]
        weights, powers = (self.read_out() * b)[:, None], _powers(a, length)  # (D, 1, N) and (D, N, T)
        kernel = weights.real @ powers.real
        if a.is_complex():
            kernel = kernel - weights.imag @ powers.imag  # (D, 1, T)
        if not len(x):  # a transform takes no batch of no rows
            return x
        if row.real is not None:  # what it rounds depends on every number
            x = torch.where(row.real[..., None], x, x.new_zeros(()))
        twice = 2 * length  # so that the end of a row doesn't come round to its start
        x = torch.fft.rfft(x.transpose(1, 2), n=twice) * torch.fft.rfft(kernel[:, 0], n=twice)  # (B, D, T + 1)
        return torch.fft.irfft(x, n=twice)[..., :length].transpose(1, 2)  # (B, T, D)

    def _stepped(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        a, b = self.discrete()
        added, kept = x[..., None] * b, a.expand(*x.shape, self.size)  # (B, T, D, N)
        if row.real is not None:  # behind the last real token the state stays
            real = row.real[..., None, None]
            added, kept = added * real, torch.where(real, kept, torch.ones_like(a))
        if row.starts is not None:
            kept = kept * ~row.starts[..., None, None]
        h = scan(kept, added, None if state is None else state["hidden"])
        if state is not None:
            state["hidden"] = h[:, -1]
        read = h * self.read_out()
        return (read.real if read.is_complex() else read).sum(-1)  # (B, T, D)

    def flops(self, tokens: int) -> int:
        products = 2 if self.a_im is not None else 1
        kernel = 2 * products * tokens * self.a_log.numel() if self.convolves else 0
        return super().flops(tokens) + kernel

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        wide = torch.promote_types(dtype, torch.float32)
        held = wide if self.a_im is None else wide.to_complex()
        return RowState(hidden=torch.zeros(batch, *self.a_log.shape, device=device, dtype=held))

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length, width = x.shape
        ctx.record("state", "B D N", batch, width, self.size)
        ctx.record("mixer output", "B T D", batch, length, width)

    @classmethod
    def check(cls, config: S4D.Config, site: Site) -> Iterable[Finding]:
        found = f"{config.kept} {config.rates} rates a channel, {config.discretisation}, by {config.trained}"
        rule = f"{site.d_model * config.d_state:,} numbers are kept a row, however long it is"
        yield Finding(Status.PASS, 1, "d_state", found, rule)
        yield from super().check(config, site)


def _powers(a: Tensor, length: int) -> Tensor:
    """1, a, a^2, ... of a (D, N), (D, N, T): each doubling is the half before it times a power, whatever its sign."""
    powers, factor = torch.ones_like(a)[..., None], a[..., None]
    while powers.shape[-1] < length:
        powers = torch.cat((powers, powers * factor), dim=-1)
        factor = factor * factor
    return powers[..., :length]
