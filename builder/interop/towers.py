"""Families of encoder-decoders: two towers of one width, and the parts of a layer that read the source."""

from __future__ import annotations

from typing import Any

from .facts import Facts
from .family import Family
from .hf_config import HFConfig

BOTH = {"is_encoder_decoder": (True,)}
"""Neutral: which they are."""


class TwoTowers(Family):
    """What fields say at `encoder.attention` and `encoder.ffn` is the encoder's own: slots apart where it differs."""

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        config.judge()  # what follows is made of these
        names = []
        for slot in ("attention", "ffn"):
            own = section[slot] | section["encoder"].pop(slot, {})
            names.append(slot if own == section[slot] else f"source_{slot}")
            section[names[-1]] = own
        section["encoder"]["pattern"] = ["+".join(names)]
        return section | {"kind": "encoder_decoder", "pattern": ["attention+cross+ffn"]}

    def write(self, facts: Facts) -> dict[str, Any]:
        facts["encoder.n_layers"]  # a model that reads no source is another family's: KeyError
        return super().write(facts)

    def note(self, facts: Facts, config: HFConfig) -> str:
        start = config.get("decoder_start_token_id")
        return "" if start is None else f"each target begins with id {start}, decoder_start_token_id of its config"
