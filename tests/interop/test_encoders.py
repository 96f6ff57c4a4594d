"""Families that read in both directions: equal to transformers in full, padded and cached passes, and bit-equal back.

The cases are in cases_encoders.py; add one for each variant that a family's tables tell apart.
"""

import pytest
import torch

from builder import export_hf
from tests.interop.cases_encoders import ENCODERS, TWO_TOWERS
from tests.interop.conftest import fields, made, ours, tensors, theirs

PAD = {"roberta": 1, "roberta later positions, classes": 3}
REAL = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 7 + [0] * 2], dtype=torch.bool)


def save(name, path):
    kind, config, values = (ENCODERS | TWO_TOWERS)[name]
    made(config(**values), kind).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """saved(name): a tiny random model of the case, saved by transformers, once."""
    there = {}

    def get(name):
        if name not in there:
            there[name] = save(name, tmp_path_factory.mktemp("model"))
        return there[name]

    return get


def ids(*shape, seed=0):
    """Tokens of that shape that no config calls padding."""
    return torch.randint(4, 37, shape, generator=torch.Generator().manual_seed(seed))


def answer(model, tokens, **others):
    """What their model gives that ours gives: logits, or a pooler's row."""
    out = model(tokens, **others)
    return out.logits if "logits" in out else out.pooler_output


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_equals_theirs(saved, name):
    """Full, padded behind and padded before; the last against theirs without its pads, whose positions it counts."""
    mine, right = ours(saved(name)), theirs(saved(name))
    tokens = ids(3, 9)
    assert (mine(tokens).logits - answer(right, tokens)).abs().max() <= 1e-5
    padded = tokens.masked_fill(~REAL, right.config.pad_token_id)
    one, other = mine(padded, attention_mask=REAL).logits, answer(right, padded, attention_mask=REAL.long())
    seen = REAL if one.ndim == 3 and one.shape[1] == 9 else torch.ones(len(one), dtype=torch.bool)
    assert (one - other)[seen].abs().max() <= 1e-5
    assert (mine(padded).logits - other)[seen].abs().max() > 1e-3  # the negative control: pads are felt
    turned = mine(padded.flip(1), attention_mask=REAL.flip(1)).logits
    for row, real in enumerate(REAL.sum(1).tolist()):
        alone = answer(right, padded[row, :real].flip(0)[None])[0]
        mine_alone = turned[row, -real:] if turned.ndim == 3 else turned[row]
        assert (mine_alone - alone).abs().max() <= 1e-5


@pytest.mark.parametrize("name", TWO_TOWERS)
def test_an_encoder_decoder_equals_theirs(saved, name):
    """Full, with a padded source, and step by step; its source read once."""
    mine, right = ours(saved(name)), theirs(saved(name))
    source, tokens = ids(3, 9), ids(3, 7, seed=1)
    full = answer(right, source, decoder_input_ids=tokens)
    assert (mine(tokens, source=source).logits - full).abs().max() <= 1e-5
    assert (mine(tokens, source=source.roll(1, 0)).logits - full).abs().max() > 1e-3  # the source is read
    padded = source.masked_fill(~REAL, right.config.pad_token_id)
    told = {"source": padded, "source_mask": REAL}
    full = answer(right, padded, attention_mask=REAL.long(), decoder_input_ids=tokens)
    assert (mine(tokens, **told).logits - full).abs().max() <= 1e-5
    assert (mine(tokens, source=padded).logits - full).abs().max() > 1e-3
    for row, real in enumerate(REAL.sum(1).tolist()):  # padded before
        alone = answer(right, source[row : row + 1, :real], decoder_input_ids=tokens[row : row + 1])
        turned = {"source": padded[row : row + 1].roll(9 - real, 1), "source_mask": REAL[row : row + 1].flip(1)}
        assert (mine(tokens[row : row + 1], **turned).logits - alone).abs().max() <= 1e-5
    state, read, cache = mine.new_state(3, 7), right.get_encoder()(padded, attention_mask=REAL.long()), None
    for part in tokens.split((3, 1, 2, 1), dim=1):
        step = right(None, attention_mask=REAL.long(), encoder_outputs=read, decoder_input_ids=part, cache=cache)
        cache = step.cache
        assert (mine(part, state=state, **told).logits - step.logits).abs().max() <= 1e-5
        told = {}


@pytest.mark.parametrize("name", ENCODERS | TWO_TOWERS)
def test_the_way_back_gives_every_bit(saved, name, tmp_path, quietly_loaded):
    folder = saved(name)
    mine, model_type = ours(folder), fields(folder)["model_type"]
    assert export_hf(mine, tmp_path / "back").model_type == model_type  # no other family says it
    before, after = tensors(folder), tensors(tmp_path / "back")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    theirs, tokens = quietly_loaded(tmp_path / "back"), ids(3, 9)
    beside = {} if mine.encoder is None else {"source": ids(3, 8, seed=1)}
    told = {"decoder_input_ids": tokens} if beside else {}
    right = answer(theirs, beside.get("source", tokens), **told)
    assert (mine(tokens, **beside).logits - right).abs().max() <= 1e-5


def test_kinds_of_tokens_are_theirs(saved):
    mine, right = ours(saved("bert")), theirs(saved("bert"))
    tokens, types = ids(2, 9), torch.tensor([[0] * 4 + [1] * 5] * 2)
    out = mine(tokens, types=types).logits
    assert (out - answer(right, tokens, token_type_ids=types)).abs().max() <= 1e-5
    assert (out - mine(tokens).logits).abs().max() > 1e-3
