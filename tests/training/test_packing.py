"""Documents packed into a row train as documents apart: losses and gradients, whatever the layers are made of."""

import pytest
import torch

from builder import build, registry
from builder.training.losses import Losses
from tests.tiny_run import spec_of

MIXED = {
    "attention": [],
    "window": ["model.attention.window=5"],
    "alibi": ["model/position=alibi"],
    "mamba": ["model/ssm=mamba", "model.pattern=[ssm]", "~model.attention", "~model.ffn", "model/position=none"],
    "mamba2": ["model/ssm=mamba2", "model.pattern=[ssm,attention+ffn]"],
    "gated_delta": ["model/ssm=gated_delta", "model.pattern=[ssm,attention+ffn]"],
    "gru": ["model/recurrent=gru", "model.pattern=[recurrent,attention+ffn]"],
}
LENGTHS = (7, 3, 9, 2)


def documents():
    draw = torch.Generator().manual_seed(0)
    return [torch.randint(0, 250, (length,), generator=draw) for length in LENGTHS]


def packed():
    """All documents in one row, three pads behind them, and which document each token is of."""
    tokens = torch.cat([*documents(), torch.full((3,), 257)])[None]
    numbers = [number + 1 for number, length in enumerate(LENGTHS) for _ in range(length)]
    segments = torch.tensor([[*numbers, 0, 0, 0]])
    return {"tokens": tokens, "segments": segments, "attention_mask": segments > 0}


def gradients(losses, *batches):
    losses.model.zero_grad()
    totals, counts = zip(*(losses(batch)[:2] for batch in batches), strict=True)
    (sum(totals) / sum(counts)).backward()
    found = {name: part.grad.clone() for name, part in losses.model.named_parameters() if part.grad is not None}
    return (sum(totals) / sum(counts)).item(), sum(counts).item(), found


@pytest.fixture
def losses(tmp_path):
    """losses(*overrides, segments=True): those of a tiny model in float64, with its documents told apart or not."""

    def make(*overrides):
        spec = spec_of(tmp_path, *overrides, "model.train_length=32", "model.deploy_length=32")
        objective = registry.find("objective", "next_token")
        model = build(spec.model, seed=0).double().train()
        return Losses(model, objective(objective.Config()), spec)

    return make


@pytest.mark.parametrize("mixed", MIXED)
def test_packed_documents_train_as_those_apart(losses, mixed):
    losses = losses(*MIXED[mixed])
    apart = gradients(losses, *({"tokens": document[None]} for document in documents()))
    together = gradients(losses, packed())
    assert together[1] == apart[1] == sum(LENGTHS) - len(LENGTHS)
    assert together[0] == pytest.approx(apart[0], abs=1e-6)
    for name, gradient in apart[2].items():
        assert (gradient - together[2][name]).abs().max() <= 1e-5 * max(1, gradient.abs().max()), name


@pytest.mark.parametrize("mixed", ["attention", "mamba2"])
def test_documents_that_see_each_other_are_seen(losses, mixed):
    """The negative control: without the segments the same row is another text."""
    losses = losses(*MIXED[mixed])
    apart = gradients(losses, *({"tokens": document[None]} for document in documents()))
    row = packed()
    mixed_up = gradients(losses, {"tokens": row["tokens"], "attention_mask": row["attention_mask"]})
    assert mixed_up[1] == sum(LENGTHS) - 1 and abs(mixed_up[0] - apart[0]) > 1e-4
