"""Gemma 3's language models (Gemma Team 2025): Gemma 2 with norms on queries and keys, and two bases of positions."""

from __future__ import annotations

from builder.interop.facts import Facts
from builder.interop.field import Field
from builder.interop.hf_config import ANY, HFConfig
from builder.interop.rope import Rope
from builder.interop.windows import GLOBAL, LOCAL

from .gemma2 import GEMMA, Gemma2


def _kinds(n_layers: int, period: int) -> list[str]:
    return [LOCAL if (layer + 1) % period else GLOBAL for layer in range(n_layers)]


class Gemma3Text(Gemma2):
    """transformers.Gemma3ForCausalLM; its code has a field for bounded scores and passes it over."""

    model_type = "gemma3_text"
    architecture = "Gemma3ForCausalLM"
    fixed = {**Gemma2.fixed, "attention": {"name": "gqa", "qk_norm": {"name": "rmsnorm", "unit_offset": True}}}
    fields = (
        *GEMMA,
        Field("head.softcap", "final_logit_softcapping", None),
        Field(("norm.eps", "attention.qk_norm.eps"), "rms_norm_eps", 1e-6),
        Field(("train_length", "deploy_length"), "max_position_embeddings", 131072),
        Rope(section=GLOBAL, theta=1e6, fraction=None),
        Rope("local.position", LOCAL, fraction=None, theta_names=("rope_local_base_freq",), scaling_name=""),
    )
    neutral = {
        **Gemma2.neutral,
        "sliding_window_pattern": ANY,  # where layer_types is stated
        "_sliding_window_pattern": ANY,
    }

    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        return _kinds(n_layers, config.get("sliding_window_pattern", 6))

    def write(self, facts: Facts):
        """Beside layer_types the period that earlier versions know, if there is one."""
        fields, n_layers = super().write(facts), facts.spec.n_layers
        fits = (n for n in range(1, n_layers + 2) if _kinds(n_layers, n) == fields["layer_types"])
        period = next(fits, None)
        return fields | ({} if period is None else {"sliding_window_pattern": period})
