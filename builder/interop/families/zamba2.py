"""Zamba2 (Glorioso et al. 2024): Mamba-2 layers, and a block or two of a Transformer that some of them share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from builder.interop.facts import Facts
from builder.interop.family import Family
from builder.interop.field import ACTIVATION, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.rule import Rule
from builder.interop.windows import tile

from .llama import Llama
from .mamba2 import Heads, headed

_KINDS = {"linear_attention": False, "mamba": False, "hybrid": True}


class Zamba2(Family):
    """transformers.Zamba2ForCausalLM, but for those with adapters in their attentions."""

    model_type = "zamba2"
    architecture = "Zamba2ForCausalLM"
    base = Llama.base
    fixed = {
        "ssm": {"name": "mamba2"},
        "norm": {"name": "rmsnorm"},
        "block": {"name": "pre_norm"},
    }
    fields = (
        Field("d_model", "hidden_size"),
        Field("n_layers", "num_hidden_layers"),
        Heads("mamba_expand", "n_mamba_heads", "mamba_headdim", "auto"),
        Field("ssm.d_state", "mamba_d_state", 64),
        Field("ssm.d_conv", "mamba_d_conv", 4),
        Field("ssm.n_groups", "mamba_ngroups", 1),
        Field("memory.attention.n_heads", "num_attention_heads", 32),
        Field("memory.attention.n_kv_heads", "num_key_value_heads", None),
        Field("memory.attention.dropout", "attention_dropout", 0.0),
        Field("memory.d_ff", "intermediate_size", None),
        Field("memory.activation", "hidden_act", "gelu", ACTIVATION),
        Field("memory.rank", "adapter_rank", 128),
        Field("norm.eps", "rms_norm_eps", 1e-5),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 4096),
        Rope(fraction=None),
    )
    neutral = {
        "tie_word_embeddings": (True,),  # without it their code has a block for every layer
        "use_long_context": (False,),
        "add_bias_linear": (False,),
        "use_shared_attention_adapter": (False,),
        "use_conv_bias": ANY,  # their code passes over it: there is one
        **dict.fromkeys(("time_step_max", "time_step_floor", "chunk_size", "num_logits_to_keep"), ANY),
        **dict.fromkeys(("use_mamba_kernels", "use_mem_eff_path"), ANY),
        **dict.fromkeys(("kv_channels", "num_query_groups", "hybrid_layer_ids"), ANY),  # computed anew, or never read
    }
    around = (
        Rule("model.embed_tokens", "embedding"),
        Rule("model.final_layernorm", "final_norm"),
        Rule("lm_head", "head"),
    )
    rules = (*around, Rule("model.layers.{n}.input_layernorm", "layers.{n}.mixer_norm"))

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        memory, width, n_layers = section.pop("memory"), section["d_model"], section["n_layers"]
        config.judge()
        attention = memory["attention"]
        head = 2 * width // attention["n_heads"]
        for field, value in (("attention_hidden_size", 2 * width), ("attention_head_dim", head)):
            if config.get(field, value) != value:
                config.refuse(field, "it follows from hidden_size and num_attention_heads", f"{value}")
        kinds, sets, floor = self._kinds(config, n_layers), self._sets(config), config.get("time_step_min", 0.001)
        if not isinstance(floor, int | float) or isinstance(floor, bool) or floor < 0:
            config.refuse("time_step_min", "a number of at least 0", "0.001")
        config.judge()
        if not config.get("use_mem_rope", False):
            section["position"] = {"name": "none"}
        section["ssm"]["dt_limit"] = [floor, None]
        attention |= {"name": "gqa", "d_head": head, "scale": (head / 2) ** -0.5}
        memory |= {"name": "memory", "ssm": section["ssm"], "d_ff": memory.get("d_ff") or 4 * width}
        entries: list[str] = []
        for hybrid in kinds:
            used = len([entry for entry in entries if entry != "ssm"])
            entries.append(f"memory_{used % sets}" if hybrid else "ssm")
        section |= {f"memory_{number}": memory | {"weights": number} for number in range(min(sets, sum(kinds)))}
        section["pattern"] = tile(entries)
        return section if False in kinds else {key: value for key, value in section.items() if key != "ssm"}

    def _sets(self, config: HFConfig) -> int:
        sets = config.get("num_mem_blocks", 1)
        if not isinstance(sets, int) or isinstance(sets, bool) or sets < 1:
            config.refuse("num_mem_blocks", "a whole number of at least 1", "1")
            config.judge()
        return sets

    def _kinds(self, config: HFConfig, n_layers: int) -> list[bool]:
        kinds = config.get("layers_block_type")
        if kinds is None:
            kinds = ["mamba", *(["mamba"] * 5 + ["hybrid"]) * 7, *["mamba"] * 4, "hybrid", *["mamba"] * 3, "hybrid"]
            kinds += ["mamba"] * 2
        if not (isinstance(kinds, list) and len(kinds) == n_layers and all(kind in _KINDS for kind in kinds)):
            config.refuse("layers_block_type", f"mamba or hybrid for each of {n_layers} layers", "a model of these two")
            config.judge()
        return [_KINDS[kind] for kind in kinds]

    def write(self, facts: Facts) -> dict[str, Any]:
        sets: list[int | None] = facts.each("ssm.weights")
        layer = next((layer for layer, number in enumerate(sets) if number is not None), None)
        if layer is None:
            raise KeyError("ssm.weights")
        memory: Mapping[str, Any] = facts[f"layers.{layer}.ssm"]
        attention = memory["attention"]
        made = super().write(facts) | {
            "layers_block_type": ["mamba" if number is None else "hybrid" for number in sets],
            "num_mem_blocks": 1 + max(number for number in sets if number is not None),
            "num_attention_heads": attention["n_heads"],
            "num_key_value_heads": attention["n_kv_heads"],
            "attention_dropout": attention["dropout"],
            "intermediate_size": memory["d_ff"],
            "hidden_act": ACTIVATION.theirs(memory["activation"]),
            "adapter_rank": memory["rank"],
            "use_mem_rope": "theta" in attention["position"],
        }
        made |= Rope(f"layers.{layer}.ssm.attention.position", fraction=None).write(facts)
        floor = memory["ssm"]["dt_limit"]
        return made | ({"time_step_min": floor[0]} if floor else {})

    def tensors(self, facts: Facts) -> Iterable[Rule]:
        """A block stands in the file, as here, where it is used first, and there stands what each use adds to it."""
        yield from self.around
        first: dict[int, int] = {}
        uses = 0
        for layer, number in enumerate(facts.each("ssm.weights")):
            theirs, ours = f"model.layers.{layer}", f"layers.{layer}.mixer"
            if number is None:
                yield from _at(layer, headed(f"{theirs}.mamba"))
                yield Rule(f"{theirs}.input_layernorm", f"layers.{layer}.mixer_norm")
                continue
            yield from _at(layer, headed(f"{theirs}.mamba_decoder.mamba"), ".ssm")
            yield Rule(f"{theirs}.mamba_decoder.input_layernorm", f"layers.{layer}.mixer_norm")
            yield Rule(f"{theirs}.linear", f"{ours}.out")
            if number not in first:
                yield from _block(f"{theirs}.shared_transformer", f"{ours}.core")
            home = f"model.layers.{first.setdefault(number, layer)}.shared_transformer.feed_forward"
            adapter = f"{home}.gate_up_proj_adapter_list.{uses}"
            yield Rule(f"{adapter}.0", f"{ours}.low")
            yield Rule(f"{adapter}.1", (f"{ours}.low_gate", f"{ours}.low_up"))
            uses += 1


def _block(theirs: str, ours: str) -> Iterator[Rule]:
    yield from (Rule(f"{theirs}.self_attn.{name}_proj", f"{ours}.attention.{name}") for name in "qkvo")
    yield Rule(f"{theirs}.feed_forward.gate_up_proj", (f"{ours}.gate", f"{ours}.up"))
    yield Rule(f"{theirs}.feed_forward.down_proj", f"{ours}.down")
    yield Rule(f"{theirs}.input_layernorm", f"{ours}.mixer_norm")
    yield Rule(f"{theirs}.pre_ff_layernorm", f"{ours}.ffn_norm")


def _at(layer: int, rules: Iterable[Rule], inside: str = "") -> Iterator[Rule]:
    """The rules of a recurrence for one layer, where it may stand inside of the mixer."""
    for rule in rules:
        ours = (rule.ours,) if isinstance(rule.ours, str) else rule.ours
        named = tuple(name.replace("{n}", str(layer)).replace(".mixer.", f".mixer{inside}.") for name in ours)
        yield replace(rule, ours=named)
