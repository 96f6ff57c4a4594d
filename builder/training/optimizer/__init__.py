"""What turns gradients into steps: the contract of an optimizer, what each parameter is to it, and which ones decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from builder.component import Component
from builder.components.init import chosen, roles
from builder.errors import Problem

DECAYED = ("matrix", "residual", "readout", "embedding")
"""The roles whose parameters decay; what a role is says builder.components.init."""

Beta = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Beta, Beta], Field(strict=False)]
Part = Literal["map", "readout", "embedding", "head", "other"]
"""A linear map, or one for each expert; one to so many numbers however wide the model, a router's; a table of vectors,
tied to the head or not; the head's own; all the rest."""
Rate = Callable[[float], float]
"""From the factor of the rate of a step that moves every number alike, as an init states it, to that of another."""
Deployed = Callable[[], dict[Tensor, Tensor]]
"""What is deployed by now, by the parameter in whose place."""


class Optimizer(Component):
    """Never instantiated: `build` returns torch's optimizer for a model."""

    @classmethod
    def refuses(cls, spec: Any, model: nn.Module) -> Iterable[Problem]:
        """What a run, whose `spec` this is, must not ask of the optimizer of `model`; it is asked before it begins."""
        return cls.unfelt(spec.optimizer, model)

    @classmethod
    def unfelt(cls, config: Any, model: nn.Module) -> Iterable[Problem]:
        """The knobs that no parameter of `model` would feel, which a run refuses before it begins."""
        return ()

    @staticmethod
    def build(config: Any, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the parameters of `model`."""
        raise NotImplementedError

    @staticmethod
    def deployed(optimizer: torch.optim.Optimizer) -> Deployed | None:
        """What is deployed in place of the parameters that `optimizer` moves, which `build` made; None: they are."""
        return None


class Stepper(torch.optim.Optimizer):
    """An optimizer that torch doesn't have: heirs say how the parameters of one group move."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Moves every parameter that has a gradient; returns what the closure does, which may compute them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if moved := [parameter for parameter in group["params"] if parameter.grad is not None]:
                self.move(moved, group)
        return loss

    def move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One step of parameters that all have a gradient, by the knobs of their group."""
        raise NotImplementedError

    def kept(self, parameters: list[Tensor], name: str) -> list[Tensor]:
        """What the state calls `name` for each parameter, zeros at first."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return [self.state[parameter][name] for parameter in parameters]


def parts(model: nn.Module) -> Iterator[tuple[Tensor, Part, bool]]:
    """(parameter, what it is, whether it decays) of every parameter that is trained, a tied one once."""
    for parameter, part, role in _trained(model):
        yield parameter, part, _decays(parameter, role)


def decay_groups(
    model: nn.Module,
    weight_decay: float,
    knobs: Mapping[Part, dict[str, Any]] | None = None,
    *,
    lr: float | None = None,
    rates: Mapping[Part, Rate] | None = None,
) -> list[dict[str, Any]]:
    """Matrices and tables decay; norm scales, biases and a module's own don't; a tied weight is in once.

    Two groups, and two more for each set of `knobs` that some parts have of their own; those without come first.
    Where the model's init scales learning rates, there are groups for each factor f, of lr f and weight_decay / f: what
    decays is lr times weight_decay, which so stays that of the base model (Wang & Aitchison 2024, "How to set AdamW's
    weight decay as you scale model and dataset size"). `lr` is that of parts whose `knobs` state none; `rates` turns f
    into that of parts whose steps aren't elementwise.
    """
    own = knobs or {}
    groups: dict[Any, dict[str, Any]] = {}
    order = _distinct([{}, *own.values()])
    for parameter, part, decays, factor in _scaled(model, rates or {}):
        shared = own.get(part, {})
        place = order.index(shared), -factor, not decays
        groups.setdefault(place, {"params": [], "weight_decay": weight_decay / factor if decays else 0.0, **shared})
        groups[place]["params"].append(parameter)
        base = shared.get("lr", lr)
        if base is not None:
            groups[place]["lr"] = base * factor
        elif factor != 1:
            raise TypeError("decay_groups: the init of this model scales learning rates, and no lr was given to scale")
    return [groups[place] for place in sorted(groups, key=lambda place: (place[0], place[1] != -1, *place[1:]))]


def _trained(model: nn.Module) -> Iterator[tuple[Tensor, Part, str | None]]:
    """(parameter, what it is to an optimizer, its role) of every parameter that is trained, a tied one once."""
    head = _head(model)
    for _, owner, parameter, role in roles(model):
        if parameter.requires_grad:
            yield parameter, _part(role, owner in head), role


def _scaled(model: nn.Module, rates: Mapping[Part, Rate]) -> Iterator[tuple[Tensor, Part, bool, float]]:
    """(parameter, what it is, whether it decays, the factor of its rate); models of transformers have none."""
    spec = getattr(model, "spec", None)
    init = None if spec is None else chosen(spec)
    for parameter, part, role in _trained(model):
        factor = 1.0 if init is None or role is None else init.rate(role, parameter.shape)
        yield parameter, part, _decays(parameter, role), rates[part](factor) if part in rates else factor


def _head(model: nn.Module) -> set[nn.Module]:
    """The map to what the head gives, the head itself or inside it; models of transformers say it by themselves."""
    told = getattr(model, "get_output_embeddings", None)
    head = getattr(model, "head", None) if told is None else told()
    if head is None:
        return set()
    return {head, *(owner for _, owner, _, role in roles(head) if role == "readout")}


def _part(role: str | None, of_head: bool) -> Part:
    if role == "embedding":
        return "embedding"
    if of_head:
        return "head"
    if role == "readout":
        return "readout"
    return "map" if role in ("matrix", "residual") else "other"


def _decays(parameter: Tensor, role: str | None) -> bool:
    return role in DECAYED or (role is None and parameter.ndim >= 2)  # of a module that states no roles: its matrices


def _distinct(sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for index, one in enumerate(sets) if one not in sets[:index]]
