"""State bytes: what grows with each token and what a layer keeps however long the text."""

import pytest

from builder import compose, ledger, load

MAMBA = ["model/ssm@model.ssm=mamba"]  # E = 2 D channels, N 16, the last 3 inputs of its convolution


@pytest.mark.parametrize(
    ("words", "per_token", "constant"),
    [
        ([], 4 * 2 * 2 * 32 * 4, {}),  # layers, keys and values, KV heads, head width, float32
        (["model.attention.window=16"], 0, {"attention": 16 * 2 * 2 * 32 * 4}),
        (["model.attention.window=1000"], 4 * 2 * 2 * 32 * 4, {}),
        ([*MAMBA, "model.pattern=[ssm]"], 0, {"ssm": 256 * (16 + 3) * 4}),
        ([*MAMBA, "model.pattern=[ssm,attention+ffn]"], 2 * 2 * 2 * 32 * 4, {"ssm": 256 * (16 + 3) * 4}),
    ],
    ids=str,
)
def test_what_grows_and_what_does_not(words, per_token, constant):
    spec = load(compose(["model.n_layers=4", "model.d_model=128", *words]))
    found = ledger(spec.model)
    assert (found.state_bytes_per_token, found.constant_state_bytes) == (per_token, constant)
    layers = [layer.parts[0].slot for layer in spec.model.layers]
    kept = sum(constant.get(slot, 0) for slot in layers)
    assert found.state_bytes == per_token * spec.model.deploy_length + kept
    assert all(f"constant, a layer of {slot}" in str(found) for slot in constant)
