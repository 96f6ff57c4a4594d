"""A mixture of experts: each token passes through a few of many ffns, which a router chooses for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Self

import torch
from pydantic import PositiveFloat, PositiveInt, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse, refuse_all
from builder.components.ffn import FFN
from builder.errors import ArchlabError
from builder.finding import Finding, Status
from builder.model.balance import Balance, aux_loss, sequence_loss, z_loss
from builder.model.context import Aux, Context
from builder.model.dispatch import Dispatch
from builder.model.grouped import Apart, per_group
from builder.model.linear import Linear
from builder.model.seats import Overflow, Seats
from builder.registry import register

from ._verdict import judge, judge_pass

if TYPE_CHECKING:
    from builder.model.exchange import Exchange


def _section_or_false(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """So that a fault is told of the key that has it, and not of each thing that might have stood there."""
    if value is None or value is False or isinstance(value, Balance):
        return value
    if not isinstance(value, dict):
        refuse("", value, "a section of keys, or false for none", "balance={aux_loss: 0.01}")
    return Balance.model_validate(value)


class _Alone(Room):
    """A slot for an ffn that changes each position whatever the others are; told before what such a one would lack."""

    def config_class(self, name: str) -> type[BaseConfig]:
        found = super().config_class(name)
        return found if found.component.alone else self._refuse(name)

    def _validate(self, value: Any) -> BaseConfig:
        config = super()._validate(value)
        return config if config.component.alone else self._refuse(config.name)

    def _refuse(self, name: str) -> NoReturn:
        rule = "it must transform each position alone, and this one looks at the others of a pass"
        refuse("name", name, rule, "name=glu")


class Unroutable(ArchlabError, ValueError):
    """A mixture whose router can't choose among its experts."""


@register("ffn", "moe")
class MoE(FFN):
    """y = scale sum_{e in S(x)} g_e(x) E_e(x) + E_shared(x), S(x) the experts chosen for x (chapter 3.9).

        x --router--> k experts and their weights        (B, T, X) -> (B, T, k)
        x --sorted by expert--> one grouped product for each linear map of the expert --> back, weighed and summed

    All experts lie in one tensor for each map, `experts.up.weight` (X, F, D); those of an ffn that has parameters
    beside its linear maps are modules of their own, `experts.3`.
    """

    alone = False

    class Config(BaseConfig):
        """How many experts there are, who goes to them, and what keeps them busy.

        top_k                   experts a token passes through
        expert                  any ffn; the experts are computed at once where it is made of linear maps
        shared                  an ffn that every token passes through beside; `shared_gate`: times sigmoid(x w)
        scale                   of what the chosen experts give together (DeepSeek: the routed scaling factor)
        capacity_factor         in training an expert takes ceil(factor N k / X) of N tokens; None: all that come
        overflow                what becomes of the others (`Seats`)
        eval_capacity_factor    the same outside of training; None: nothing is ever dropped there
        balance                 what spreads the load (`Balance`); False: nothing shall; None: not said, and refused
        """

        name: str = "moe"
        n_experts: PositiveInt
        top_k: PositiveInt
        expert: Annotated[BaseConfig, _Alone("ffn")]
        shared: Annotated[BaseConfig, _Alone("ffn")] | None = None
        shared_gate: bool = False
        router: Annotated[BaseConfig, Room("router")]
        scale: PositiveFloat = 1.0
        capacity_factor: PositiveFloat | None = None
        overflow: Overflow = "drop"
        eval_capacity_factor: PositiveFloat | None = None
        balance: Annotated[Balance | Literal[False] | None, WrapValidator(_section_or_false)] = None

        @model_validator(mode="after")
        def _its_parts_fit(self) -> Self:
            faults = []
            if self.shared_gate and self.shared is None:
                faults.append(("shared_gate", True, "there is no shared expert to be gated", "shared_gate=false"))
            if self.overflow != "drop" and not (self.capacity_factor or self.eval_capacity_factor):
                rule = "nothing overflows without a capacity"
                faults.append(("overflow", self.overflow, rule, "capacity_factor=1.25"))
            refuse_all(faults)
            return self

        def shrink(self, site: Site) -> Self:
            small = {"expert": self.expert.shrink(site), "shared": self.shared and self.shared.shrink(site)}
            dropless = {"eval_capacity_factor": None}  # what it breaks is said, and the rest can still be proven
            return self.model_copy(update=small | dropless | {"router": self.router.shrink(site)})

    def __init__(self, config: MoE.Config, site: Site):
        super().__init__()
        for finding in judge(config, site):
            if finding.status is Status.FAIL and finding.section == 5:
                raise Unroutable(f"{finding.path}: found {finding.found}; {finding.rule}; write {finding.fix}")
        expert, balance = config.expert, config.balance
        self.balance = balance or None
        speed = balance.bias_speed if balance else 0.0
        router: Any = config.router.component
        self.router = router(config.router, site.d_model, config.n_experts, config.top_k, learns=speed > 0)
        self.experts, self.groups = per_group(lambda: expert.component(expert, site), config.n_experts)
        with torch.device("meta"):  # one by itself
            self._expert_flops: int = expert.component(expert, site).flops(1)
        self.shared = config.shared and config.shared.component(config.shared, site)
        self.shared_gate = Linear(site.d_model, 1, role="readout") if config.shared_gate else None
        self.n_experts, self.top_k, self.scale, self.width = config.n_experts, config.top_k, config.scale, site.d_model
        self.exchange: Exchange | None = None  # where the experts lie on several ranks
        self.training_seats = _seats(config.capacity_factor, config.overflow)
        self.other_seats = _seats(config.eval_capacity_factor, config.overflow)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        sequences, length, _ = x.shape
        flat = x.flatten(0, 1)  # (N, D)
        real = ctx.mask.real_queries(length)
        real = None if real is None else real.expand(sequences, -1).flatten()  # (N,)
        routing = self.router.route(flat, real, self.training_seats if self.training else self.other_seats)
        inside = replace(ctx, aux=ctx.aux.empty())
        y = routing.dispatch.gather(self._through_experts(routing.dispatch, flat, inside))  # (N, D)
        y = (y if self.scale == 1 else y * self.scale).view_as(x)
        self._report(ctx, inside.aux, sequences, length)
        if self.training:
            ctx.aux.tallies[self] = torch.cat((routing.asked, routing.over[None], routing.dropped[None]))  # (X + 2,)
            self._add_losses(ctx, routing, real, sequences)
        return y if self.shared is None else y + self._of_all(x, ctx)

    def _through_experts(self, dispatch: Dispatch, flat: Tensor, ctx: Context) -> Tensor:
        """What the experts make of the tokens' rows, (M, D), sorted by expert."""

        def experts(rows: Tensor, counts: Tensor, full: bool = True) -> Tensor:
            self.groups.divide(counts, full)
            return self.experts(rows, ctx)

        rows = dispatch.spread(flat)  # (M, D)
        if self.exchange is None:
            return experts(rows, dispatch.counts, dispatch.full)
        return self.exchange.through(rows, dispatch.counts, experts)

    @property
    def n_groups(self) -> int:
        return 0 if isinstance(self.experts, Apart) else self.n_experts

    def spread_over(self, mesh: Any) -> list[nn.Parameter]:
        from torch.distributed.tensor import Shard, distribute_tensor

        from builder.model.exchange import Exchange

        ranks = mesh.size()
        if self.n_groups == 0 or self.n_experts % ranks:
            return []
        self.exchange = Exchange(mesh.get_group())
        self.groups.n_groups = self.n_experts // ranks
        for part in self.experts.modules():
            for name, whole in list(part.named_parameters(recurse=False)):
                mine = nn.Parameter(distribute_tensor(whole.detach(), mesh, [Shard(0)]))
                setattr(part, name, mine)
        return list(self.experts.parameters())

    def _of_all(self, x: Tensor, ctx: Context) -> Tensor:
        """What the shared expert gives, (B, T, D)."""
        assert self.shared is not None
        y = self.shared(x, ctx)
        return y if self.shared_gate is None else self.shared_gate(x).sigmoid() * y

    def _add_losses(self, ctx: Context, routing: Any, real: Tensor | None, sequences: int) -> None:
        if self.balance is None or routing.chosen is None:
            return
        probabilities, chosen, whole = routing.probabilities, routing.chosen, ctx.aux.whole
        rows = whole and whole.sequences_of_pass

        def aux() -> Tensor:
            counts = whole.chosen(self, routing.asked) if whole else None
            return aux_loss(probabilities, chosen, real, counts)

        terms = {
            "aux_loss": (self.balance.aux_loss, aux),
            "z_loss": (self.balance.z_loss, lambda: z_loss(routing.logits, real)),
            "sequence_loss": (
                self.balance.sequence_loss,
                lambda: sequence_loss(probabilities, chosen, real, sequences, rows),
            ),
        }
        for name, (weight, loss) in terms.items():
            if weight:
                ctx.aux.losses[f"moe/{name}"] = weight * loss()

    @property
    def counts_ahead(self) -> bool:
        return self.balance is not None and self.balance.aux_loss > 0

    def settle(self, tally: Tensor) -> None:
        """Moves the preferences of the router by what one optimizer step counted, (X + 2,) as in `Aux.tallies`."""
        if self.balance is not None and self.balance.bias_speed:
            self.router.settle(tally[: self.n_experts], self.balance.bias_speed)

    def _report(self, ctx: Context, inside: Aux, sequences: int, length: int) -> None:
        ctx.record("expert scores", "B T X", sequences, length, self.n_experts)
        ctx.record("expert weights", "B T k", sequences, length, self.top_k)
        for line in inside.shapes or ():
            ctx.record(f"{line.tensor}, expert", "B T k F", sequences, length, self.top_k, line.sizes[-1])

    def flops(self, tokens: int) -> int:
        beside = [part.flops(tokens) for part in (self.router, self.shared) if part is not None]
        gate = 2 * tokens * self.width if self.shared_gate is not None else 0
        return self.router.rows(tokens) * self._expert_flops + sum(beside) + gate

    def idle_parameters(self) -> int:
        held = sum(parameter.numel() for parameter in self.experts.parameters())
        return held // self.n_experts * (self.n_experts - self.top_k)

    def dispatched(self) -> int:
        return self.top_k * self.width

    @classmethod
    def left_unbalanced(cls, config: MoE.Config) -> bool:
        return config.balance is False

    @classmethod
    def inner(cls, config: MoE.Config, site: Site) -> Iterable[tuple[str, BaseConfig, Site]]:
        together = replace(site, copies=config.top_k + (config.shared is not None))
        yield "expert", config.expert, together
        if config.shared is not None:
            yield "shared", config.shared, together

    @classmethod
    def check(cls, config: MoE.Config, site: Site) -> Iterable[Finding]:
        return judge(config, site)

    @classmethod
    def judge_pass(cls, config: MoE.Config, tokens: int) -> Iterable[Finding]:
        return judge_pass(config, tokens)


def _seats(factor: float | None, overflow: Overflow) -> Seats | None:
    return None if factor is None else Seats(factor, overflow)
