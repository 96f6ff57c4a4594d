"""What the layers of a built model keep of a sequence, each by itself, read off their states."""

from __future__ import annotations

from builder.architecture import EncoderSpec
from builder.model.assemble import build
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec


def once(spec: ModelSpec) -> LanguageModel:
    """The architecture with each kind of layer once, in the order of `spec.kinds`; nothing is allocated."""
    small = {"n_layers": len(spec.kinds), "pattern": tuple(spec.kinds)}
    if (source := spec.source) is not None:
        small["encoder"] = EncoderSpec(n_layers=len(source.kinds), pattern=tuple(source.kinds))
    return build(spec.model_copy(update=small), device="meta")


def kept(model: LanguageModel, batch: int, length: int) -> list[dict[str, int]]:
    """Bytes that each layer keeps of `batch` sequences of `length` tokens, by the kind of its part: `mixer`, and
    `cross` for what it makes of a source of train_length tokens."""
    state = model.new_state(batch, length)
    sources = {} if state.source is None else state.source.layers
    found = [{"mixer": layer.bytes()} for layer in state.layers]
    return [held | ({"cross": sources[at].bytes()} if at in sources else {}) for at, held in enumerate(found)]
