"""The models that these tests measure: tiny, one like Llama and one like GPT-2."""

from builder import compose, load
from builder.spec import RunSpec

SIZES = ["model.d_model=16", "model.n_layers=2", "model.train_length=16", "model.deploy_length=24", "trainer=cpu"]
SIZES += ["model.attention.n_heads=4", "model.ffn.d_ff=40", "model.vocab_size=260", "batch.sequences=2"]
LLAMA = [*SIZES, "model.attention.n_kv_heads=2", "model.tie_embeddings=false"]
GPT2 = [*SIZES, "model/attention=mha", "model.attention.bias=true", "model/ffn=mlp", "model.ffn.activation=gelu_tanh"]
GPT2 += ["model/norm=layernorm", "model/position=learned", "model.deploy_length=16"]


def spec_of(*overrides: str) -> RunSpec:
    """The RunSpec of these overrides."""
    return load(compose(list(overrides), "train"))
