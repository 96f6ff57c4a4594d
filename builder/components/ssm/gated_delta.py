"""Linear attention that corrects itself: what stands at a key is replaced, not added to, and all of it decays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse_all
from builder.components.ssm import SSM, Convolution, Steps, decays
from builder.finding import Finding, Status
from builder.model.activations import SILU, gated
from builder.model.compact import Compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.row_state import RowState
from builder.registry import register

from ._delta_rule import delta_rule, multiplied


@register("ssm", "gated_delta")
class GatedDelta(SSM):
    """S_t = e^g_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T,  y_t = S_t^T q_t / sqrt(N) for each head, g_t < 0
    (Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks"; Qwen3-Next):

        x --q, k, v--> conv --> silu --> q, k of length 1 (G, N), v (H, V)      G key heads serve H / G heads each
        x --beta--> sigmoid --> beta (H)      x --dt--> softplus --> times e^a_log --> -g (H)
        norm(y) silu(x W_gate) --o--> (D)

    The state holds H N V + (d_conv - 1) (2 G N + H V) numbers a row, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of the gated delta rule.

        n_heads     heads, H: of values, decays and gates
        n_key_heads heads of queries and keys, G; None: as many
        d_key       width of a key, N; None: d_model / n_heads
        d_value     width of a value, V; None: d_key
        d_conv      tokens that the convolution sees
        gate        whether what is read is multiplied by silu(x W_gate)
        norm        of what each head reads; None: the model's
        dt_min      the steps lie between these two at first
        dt_max
        """

        name: str = "gated_delta"
        n_heads: PositiveInt
        n_key_heads: PositiveInt | None = None
        d_key: PositiveInt | None = None
        d_value: PositiveInt | None = None
        d_conv: PositiveInt = 4
        gate: bool = True
        norm: Annotated[BaseConfig, Room("norm")] | None = None
        dt_min: PositiveFloat = 1e-3
        dt_max: PositiveFloat = 0.1

        @property
        def key_heads(self) -> int:
            return self.n_key_heads or self.n_heads

        def key_width(self, d_model: int) -> int:
            """N, in a model of that width."""
            return self.d_key or d_model // self.n_heads

        def value_width(self, d_model: int) -> int:
            """V, in a model of that width."""
            return self.d_value or self.key_width(d_model)

        @model_validator(mode="after")
        def _its_numbers_fit(self) -> Self:
            faults = []
            if self.n_heads % self.key_heads:
                fitting = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
                rule = f"n_key_heads must divide n_heads={self.n_heads}: one of {', '.join(map(str, fitting))}"
                near = min(fitting, key=lambda heads: abs(heads - self.key_heads))
                faults.append(("n_key_heads", self.n_key_heads, rule, f"n_key_heads={near}"))
            if self.dt_min >= self.dt_max:
                rule = f"less than dt_max={self.dt_max:g}"
                faults.append(("dt_min", self.dt_min, rule, "dt_min=0.001 dt_max=0.1"))
            refuse_all(faults)
            return self

        def grows(self) -> Iterable[str]:
            return ("n_heads",) if self.n_key_heads is None else ("n_heads", "n_key_heads")

        def shrink(self, site: Site) -> Self:
            keys = min(self.key_heads, 2)
            heads = keys * min(self.n_heads // self.key_heads, 2)
            small = {"n_heads": heads, "n_key_heads": self.n_key_heads and keys, "d_conv": min(self.d_conv, 4)}
            widths = {key: (value := getattr(self, key)) and min(value, 8) for key in ("d_key", "d_value")}
            return self.model_copy(update=small | widths | {"norm": self.norm and self.norm.shrink(site)})

    roles = {"a_log": "own"}

    def __init__(self, config: GatedDelta.Config, site: Site):
        super().__init__()
        d_model, norm = site.d_model, config.norm or site.norm
        self.heads, self.key_heads = config.n_heads, config.key_heads
        self.key, self.value = config.key_width(d_model), config.value_width(d_model)
        keys, values = self.key_heads * self.key, self.heads * self.value
        self.q = Linear(d_model, keys)
        self.k = Linear(d_model, keys)
        self.v = Linear(d_model, values)
        self.gate = Linear(d_model, values) if config.gate else None
        self.beta = Linear(d_model, self.heads)
        self.dt = Steps(d_model, self.heads, config.dt_min, config.dt_max, narrow=False)
        self.conv = Convolution(2 * keys + values, config.d_conv, bias=False)
        self.a_log = nn.Parameter(torch.empty(self.heads))
        self.norm = norm.component(norm, self.value)
        self.o = Linear(values, d_model, role="residual")
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """e^a_log is uniform up to 16."""
        self.a_log.uniform_(0.01, 16.0, generator=generator).log_()  # a head whose rate is 0 could never decay

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        inputs = torch.cat((self.q(x), self.k(x), self.v(x)), dim=-1)
        before = self.conv.history(inputs, state)
        q, k, v = self._heads(F.silu(self.conv(inputs, row, before)))
        beta, step = self.beta(x).to(q.dtype).sigmoid(), self.dt(x)
        if row.real is not None:  # behind the last real token the state stays
            beta, step = beta * row.real[..., None], step * row.real[..., None]
        hidden = None if state is None else state["hidden"]
        y, last = delta_rule(q, k, v, decays(self.a_log) * step, beta, hidden, row.starts)
        if state is not None:
            state["inputs"], state["hidden"] = row.ends(inputs, before), last
        y = self.norm(y.to(x.dtype)).flatten(-2)  # (B, T, H V)
        return self.o(y if self.gate is None else gated(SILU, self.gate(x), y))

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of length 1 (B, T, H, N), and values (B, T, H, V), in float32 or wider."""
        keys = self.key_heads * self.key
        parts = mixed.to(torch.promote_types(mixed.dtype, torch.float32)).split((keys, keys, self.o.in_features), -1)
        q, k = (_unit(part.unflatten(-1, (self.key_heads, self.key))) for part in parts[:2])  # (B, T, G, N)
        if self.key_heads != self.heads:
            q, k = (part.repeat_interleave(self.heads // self.key_heads, dim=2) for part in (q, k))  # (B, T, H, N)
        return q * self.key**-0.5, k, parts[2].unflatten(-1, (self.heads, self.value))

    def flops(self, tokens: int) -> int:
        return super().flops(tokens) + 2 * self.heads * multiplied(tokens, self.key, self.value)

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        wide = torch.promote_types(dtype, torch.float32)
        channels, kept = len(self.conv.weight), self.conv.width - 1
        return RowState(
            inputs=torch.zeros(batch, kept, channels, device=device, dtype=dtype),
            hidden=torch.zeros(batch, self.heads, self.key, self.value, device=device, dtype=wide),
        )

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length = x.shape[:2]
        ctx.record("q, k", "B G T N", batch, self.key_heads, length, self.key)
        ctx.record("v", "B H T V", batch, self.heads, length, self.value)
        ctx.record("g, beta", "B H T", batch, self.heads, length)
        ctx.record("state", "B H N V", batch, self.heads, self.key, self.value)
        ctx.record("mixer output", "B T D", *x.shape)

    @classmethod
    def check(cls, config: GatedDelta.Config, site: Site) -> Iterable[Finding]:
        keys, values = config.key_width(site.d_model), config.value_width(site.d_model)
        found = f"H {config.n_heads}, G {config.key_heads}, N {keys}, V {values}, conv {config.d_conv}"
        if config.d_key is None and site.d_model % config.n_heads:
            rule = f"n_heads must divide d_model={site.d_model}, or d_key be given"
            fix = f"model.d_model={-(-site.d_model // config.n_heads) * config.n_heads}, or a d_key"
            yield Finding(Status.FAIL, 1, "n_heads", str(config.n_heads), rule, fix)
        else:
            channels = 2 * config.key_heads * keys + config.n_heads * values
            held = config.n_heads * keys * values + (config.d_conv - 1) * channels
            yield Finding(Status.PASS, 1, "d_key", found, f"{held:,} numbers are kept a row, however long it is")
        yield from super().check(config, site)


def _unit(x: Tensor) -> Tensor:
    """x (..., N) over its length, which keeps I - beta k k^T from growing anything."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
