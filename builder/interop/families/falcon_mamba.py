"""Falcon Mamba (Zuo et al. 2024): Mamba, with norms that learn nothing on what the steps, B and C are made of."""

from __future__ import annotations

from builder.interop.field import Field

from .mamba import Mamba


class FalconMamba(Mamba):
    """transformers.FalconMambaForCausalLM."""

    model_type = "falcon_mamba"
    architecture = "FalconMambaForCausalLM"
    fixed = {**Mamba.fixed, "ssm": {"name": "mamba", "norm": {"name": "nonparametric", "center": False}}}
    fields = (
        *Mamba.fields,
        Field("ssm.norm.eps", "mixer_rms_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 8192),
    )
    neutral = {**Mamba.neutral, "use_falcon_mambapy": Mamba.neutral["use_mambapy"]}
