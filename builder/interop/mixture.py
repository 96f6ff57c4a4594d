"""Families in which layers, some or all, have a mixture of experts in the place of one dense ffn."""

from __future__ import annotations

from typing import Any

from .facts import Facts
from .family import Family
from .field import Choice, Field, Formula
from .hf_config import ANY, HFConfig
from .rule import Rule
from .windows import tile

_LAYER, _OURS = "model.layers.{n}", "layers.{n}.ffn"

RENORMALISED = Choice({True: "renormalised", False: "plain"})
"""Whether the probabilities of the chosen experts are made to sum to 1."""
SHARED = {
    "name": "moe",
    "expert": {"name": "glu"},
    "shared": {"name": "glu"},
    "shared_gate": True,
    "router": {"name": "topk"},
}
"""A mixture with a gated expert for every token beside those that are chosen (Qwen)."""
ROUTED = {"output_router_logits": ANY}
"""Neutral: what is returned beside the logits."""


def balanced(coefficient: float) -> Field:
    """The field of the balancing loss, with its default; at 0 nothing balances, as asked for.

    Theirs is of all layers together and k times as large; ours, of each layer. Trained weights know no difference.
    """
    code = Formula(lambda value: {"aux_loss": value} if value else False, lambda balance: balance["aux_loss"])
    return Field("moe.balance", "router_aux_loss_coef", coefficient, code)


def experts(block: str = "mlp", **names: str) -> tuple[Rule, ...]:
    """The rules of experts that lie apart in their files, {ours: theirs}; without any, the names of Llama's ffn."""
    names = names or {name: f"{name}_proj" for name in ("gate", "up", "down")}
    return tuple(
        Rule(f"{_LAYER}.{block}.experts.{{e}}.{theirs}", f"{_OURS}.experts.{ours}") for ours, theirs in names.items()
    )


def beside(theirs: str) -> tuple[Rule, ...]:
    """The rules of the expert that every token passes through."""
    return tuple(
        Rule(f"{_LAYER}.mlp.{theirs}.{name}_proj", f"{_OURS}.shared.{name}") for name in ("gate", "up", "down")
    )


class Mixture(Family):
    """A layer with experts has our slot `moe`, another one `ffn`; a slot that no layer has is left out."""

    def sparse(self, config: HFConfig, n_layers: int) -> list[bool]:
        """Whether each layer has experts."""
        return [True] * n_layers

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        ffns = ["moe" if sparse else "ffn" for sparse in self.sparse(config, section["n_layers"])]
        mixers = [entry.partition("+")[0] for entry in section.get("pattern", ["attention+ffn"])]
        section["pattern"] = tile([f"{mixers[layer % len(mixers)]}+{ffn}" for layer, ffn in enumerate(ffns)])
        return {slot: value for slot, value in section.items() if slot not in {"moe", "ffn"} - set(ffns)}


class Stepped(Mixture):
    """Layer i has experts where `decoder_sparse_step` divides i + 1, unless `mlp_only_layers` names it (Qwen)."""

    def sparse(self, config: HFConfig, n_layers: int) -> list[bool]:
        step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
        if not isinstance(step, int) or isinstance(step, bool) or step < 1:
            config.refuse("decoder_sparse_step", "a whole number of at least 1", "1")
        if not isinstance(dense, list):
            config.refuse("mlp_only_layers", "a list of numbers of layers", "[]")
        config.judge()
        return [(layer + 1) % step == 0 and layer not in dense for layer in range(n_layers)]

    def write(self, facts: Facts) -> dict[str, Any]:
        dense = [layer for layer, name in enumerate(facts.each("moe.name")) if name is None]
        return super().write(facts) | {"decoder_sparse_step": 1, "mlp_only_layers": dense}
