"""T5 (Raffel et al. 2020) and its version 1.1 (Shazeer 2020): biases by distance, RMSNorm first, no other biases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from builder.interop.facts import Facts
from builder.interop.field import ACTIVATION, Code, Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rule import Rule
from builder.interop.towers import BOTH, TwoTowers
from builder.interop.weights import Weights

_TOWERS = {"encoder": ("encoder.", ("mixer", "ffn")), "decoder": ("", ("mixer", "cross", "ffn"))}
_NAMES = {"mixer": "SelfAttention", "cross": "EncDecAttention", "ffn": "DenseReluDense"}
_GATED, _SLOTS = "gated-", ("mlp", "glu")
_FFNS = {"mlp": {"wi": "up", "wo": "down"}, "glu": {"wi_0": "gate", "wi_1": "up", "wo": "down"}}


def _layers(maps: Mapping[str, Mapping[str, str]]) -> Iterable[Rule]:
    """The tensors of the maps, {theirs: ours}, of each kind of part; theirs numbers the parts of a layer."""
    for tower, (ours, parts) in _TOWERS.items():
        for index, part in enumerate(parts):
            layer, own = f"{tower}.block.{{n}}.layer.{index}", f"{ours}layers.{{n}}"
            for theirs, name in maps.get(part, {}).items():
                yield Rule(f"{layer}.{_NAMES[part]}.{theirs}", f"{own}.{part}.{name}")


def _around() -> Iterable[Rule]:
    """Their norms and tables of biases, which the first layer of a tower holds for all."""
    for tower, (ours, parts) in _TOWERS.items():
        for index, part in enumerate(parts):
            yield Rule(f"{tower}.block.{{n}}.layer.{index}.layer_norm", f"{ours}layers.{{n}}.{part}_norm")
        table = f"{tower}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield Rule(table, f"{ours}positions.model.weight")
        yield Rule(f"{tower}.final_layer_norm", f"{ours}final_norm")


class _Projection(Code):
    """`feed_forward_proj` as a slot: an activation, `gated-` before it for a gated ffn; gated-gelu is the tanh form."""

    rule = f"an activation, or gated- and one of them: {ACTIVATION.rule.removeprefix('one of ')}"

    def ours(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise KeyError(value)
        name = activation(value) if value.startswith(_GATED) else value
        return {"name": _SLOTS[value.startswith(_GATED)], "activation": ACTIVATION.ours(name)}

    def theirs(self, value: Any) -> Any:
        name, gated = ACTIVATION.theirs(value["activation"]), _SLOTS.index(value["name"])
        plain = {"gelu": "gelu_python", "gelu_pytorch_tanh": "gelu"}  # what gated-gelu means is the second
        return f"{_GATED}{plain.get(name, name)}" if gated else name


def activation(projection: str) -> str:
    """The name of the activation in a `feed_forward_proj`, as their code takes it."""
    return "gelu_new" if projection == "gated-gelu" else projection.rpartition("-")[2]


class T5(TwoTowers):
    """transformers.T5ForConditionalGeneration, of either version.

    Version 1 multiplies what enters its head, the table, by d_model^-0.5. Their code takes a head of its own to be one
    where a file holds it, whatever tie_word_embeddings says.
    """

    model_type = "t5"
    architecture = "T5ForConditionalGeneration"
    everywhere = (Field("vocab_size", "vocab_size"),)
    fixed = {
        "attention": {"name": "gqa", "scale": 1.0},
        "cross": {"name": "cross", "scale": 1.0},
        "ffn": {"bias": False},
        "norm": {"name": "rmsnorm"},
        "block": {"name": "pre_norm"},
        "position": {"name": "t5"},
    }
    fields = (
        Field("d_model", ("d_model", "hidden_size")),
        Field("encoder.n_layers", "num_layers"),
        Field("n_layers", "num_decoder_layers", None),  # as many as the encoder has
        Field(("attention.n_heads", "cross.n_heads"), ("num_heads", "num_attention_heads")),
        Field(("attention.d_head", "cross.d_head"), "d_kv", 64),
        Field("ffn.d_ff", "d_ff"),
        Field("ffn", "feed_forward_proj", "relu", _Projection()),
        Field("norm.eps", "layer_norm_epsilon", 1e-6),
        Field("position.n_buckets", "relative_attention_num_buckets", 32),
        Field("position.max_distance", "relative_attention_max_distance", 128),
        Field(("attention.dropout", "cross.dropout", "embedding.dropout", "block.dropout"), "dropout_rate", 0.1),
        Field(("train_length", "deploy_length"), "n_positions", 512),  # their code needs none, but files state it
    )
    neutral = {**BOTH, **dict.fromkeys(("initializer_factor", "output_past"), ANY)}
    ignorable = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    copies = {"decoder.embed_tokens.weight": "embedding.weight"}
    rules = (
        Rule("shared", "embedding"),
        Rule("encoder.embed_tokens.weight", "encoder.embedding.weight"),
        *_layers({part: dict(zip("qkvo", "qkvo", strict=True)) for part in ("mixer", "cross")}),
        *_around(),
        Rule("lm_head", "head"),
    )

    def beside(self, files: Weights) -> dict[str, Any]:
        head, table = "lm_head.weight", "shared.weight"
        apart = head in files.shapes and table in files.shapes and not torch.equal(files[head], files[table])
        return {"tied": not apart}

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        section.setdefault("n_layers", section["encoder"]["n_layers"])
        tied = config.get("tie_word_embeddings", True)
        section["tie_embeddings"] = config.get("beside.tied", tied)
        if config.get("scale_decoder_outputs", tied):
            section["head"] = {"scale": section["d_model"] ** -0.5}
        projection = config.get("feed_forward_proj", "relu")
        for name, meant in (
            ("dense_act_fn", activation(projection)),
            ("is_gated_act", projection.startswith(_GATED)),
        ):
            if config.get(name, meant) != meant:
                config.refuse(name, f"feed_forward_proj is {projection}, which says {meant}", str(meant))
        return section

    def write(self, facts: Facts) -> dict[str, Any]:
        tied, scale = facts["tie_embeddings"], facts.get("head.scale")
        scaled = scale is not None and math.isclose(scale, facts["d_model"] ** -0.5, rel_tol=1e-9)
        ends = {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled, "beside": {"tied": tied}}
        return super().write(facts) | ends

    def tensors(self, facts: Facts) -> Iterable[Rule]:
        return (*self.rules, *_layers({"ffn": _FFNS.get(facts["ffn.name"], {})}))
