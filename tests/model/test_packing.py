"""Packed documents equal the documents apart, logits and gradients, for every scheme and kernel."""

import pytest
import torch
from torch.nn import functional as F

from tests.choices import slot

LENGTHS = (4, 1, 7)


@pytest.fixture
def packed(ids):
    tokens = ids(1, sum(LENGTHS))
    segments = torch.repeat_interleave(torch.tensor([3, 0, 9]), torch.tensor(LENGTHS))[None]
    return tokens, segments


def loss(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@torch.no_grad()
def test_packed_documents_equal_the_documents_apart_in_every_kernel(tiny, pinned, packed, kernel):
    model = tiny(position="alibi", attention=pinned(kernel), n_layers=1)
    tokens, segments = packed
    apart = [model(document).logits for document in tokens.split(LENGTHS, dim=1)]
    assert (model(tokens, segments=segments).logits - torch.cat(apart, dim=1)).abs().max() <= 1e-5


@pytest.mark.parametrize("knobs", [{}, {"window": 3}, {"sinks": True}, {"softcap": 2.0}], ids=str)
@torch.no_grad()
def test_packed_documents_equal_the_documents_apart_in_every_attention(tiny, packed, scheme, attention, knobs):
    model = tiny(position=scheme, attention=slot("attention", attention, **knobs))
    tokens, segments = packed
    apart = torch.cat([model(document).logits for document in tokens.split(LENGTHS, dim=1)], dim=1)
    together = model(tokens, segments=segments).logits
    assert (together - apart).abs().max() <= 1e-5 * max(1, apart.abs().max())


def test_packed_documents_equal_the_documents_apart(tiny, pinned, packed, scheme, trained):
    model = tiny(position=scheme, attention=pinned(trained))
    tokens, segments = packed
    together = model(tokens, segments=segments).logits
    documents = tokens.split(LENGTHS, dim=1)
    apart = [model(document).logits for document in documents]
    assert (together - torch.cat(apart, dim=1)).abs().max() <= 1e-5
    pieces = zip(together.split(LENGTHS, dim=1), documents, strict=True)
    one = gradients(model, sum(loss(logits, document) for logits, document in pieces))
    other = gradients(model, sum(loss(model(d).logits, d) for d in documents))
    for name in one:
        assert (one[name] - other[name]).abs().max() <= 1e-5 * max(1, other[name].abs().max()), name


def test_without_segments_documents_see_each_other(tiny, packed, scheme):
    model = tiny(position=scheme)
    tokens, segments = packed
    together = model(tokens).logits
    apart = torch.cat([model(document).logits for document in tokens.split(LENGTHS, dim=1)], dim=1)
    assert (together - apart).abs().max() > 1e-2


@pytest.mark.parametrize("inside", [True, False], ids=["pads of the first document", "pads of their own"])
def test_padding_in_a_packed_row_counts_no_position(tiny, packed, scheme, inside):
    model = tiny(position=scheme)
    tokens, segments = packed
    pads = torch.zeros(1, 3, dtype=torch.long)
    real = torch.cat((pads.bool(), torch.ones_like(tokens, dtype=torch.bool)), dim=1)
    owner = segments[:, :1].expand(1, 3) if inside else pads - 1
    logits = model(torch.cat((pads, tokens), 1), attention_mask=real, segments=torch.cat((owner, segments), 1)).logits
    assert (logits[:, 3:] - model(tokens, segments=segments).logits).abs().max() <= 1e-5


def test_a_state_takes_no_segments(tiny, packed):
    model = tiny()
    tokens, segments = packed
    with pytest.raises(ValueError, match="segments"):
        model(tokens, segments=segments, state=model.new_state(1, 20))


def test_a_decoder_takes_no_source(tiny, packed):
    tokens, _ = packed
    with pytest.raises(ValueError, match="encoder_decoder"):
        tiny()(tokens, source=tokens)
