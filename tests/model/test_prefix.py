"""A prefix that is read once: what several prompts make of its state is what they make of the whole text."""

import pytest
import torch

from builder.generation import generate
from builder.generation.request import GenerationError
from tests.choices import mixer_slots

MIXERS = mixer_slots()
REAL = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]).bool()


@pytest.fixture
def model(tiny):
    return lambda mixer: tiny(torch.float64, pattern=("mixer+ffn", "attention"), mixer=MIXERS[mixer])


def read(model, prefix, room=24):
    state = model.new_state(len(prefix), room)
    with torch.no_grad():
        model(prefix, state=state)
    return state


def whole(prefix, tokens, real):
    """The texts without padding between prefix and prompt, padded on the left instead."""
    rows = [torch.cat((p, t[r])) for p, t, r in zip(prefix, tokens, real, strict=True)]
    length = max(map(len, rows))
    padded = torch.stack([torch.cat((row.new_zeros(length - len(row)), row)) for row in rows])
    return padded, torch.stack([torch.arange(length) >= length - len(row) for row in rows])


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("padded", [False, True])
def test_a_prefix_read_once_is_the_prefix_read_each_time(model, ids, mixer, padded):
    made, prefix, tokens = model(mixer), ids(1, 6), ids(3, 4, seed=1)
    real = REAL if padded else torch.ones_like(REAL)
    text, mask = whole(prefix.expand(3, -1), tokens, real)
    state = read(made, prefix)
    for knobs in ({}, {"num_beams": 3}, {"temperature": 1.0, "seed": 3}):
        right = generate(made, text, attention_mask=mask, max_new_tokens=9, **knobs)
        for given in (state, state.expand(3))[: 1 if knobs else 2]:
            found = generate(made, tokens, attention_mask=real, state=given, max_new_tokens=9, **knobs)
            assert torch.equal(found.tokens, right.tokens)
            assert (found.logprobs - right.logprobs).abs().max() < 1e-5
    assert state.length == 6 and state.rows == 1, "a given state stays as it is"
    other = generate(made, tokens, attention_mask=real, state=read(made, prefix.flip(1)), max_new_tokens=9)
    plain = generate(made, tokens, attention_mask=real, state=state, max_new_tokens=9)
    assert (other.logprobs - plain.logprobs).abs().max() > 1e-3, "another prefix is felt"


def test_a_state_that_does_not_fit_is_refused(model, ids):
    made = model("attention/gqa")
    with pytest.raises(GenerationError, match=r"(?s)state: found 2 rows.*each of the 3 prompts.*state.expand"):
        generate(made, ids(3, 4), max_new_tokens=2, state=read(made, ids(2, 6)))
    with pytest.raises(GenerationError, match=r"(?s)room for 24 tokens.*6 in it \+ prompt 4 \+ max_new_tokens 15 = 25"):
        generate(made, ids(1, 4), max_new_tokens=15, state=read(made, ids(1, 6)))
    with pytest.raises(GenerationError, match="deploy_length = 64"):
        generate(made, ids(1, 4), max_new_tokens=57, state=read(made, ids(1, 6), room=90))
