"""Prefill and decode in any split equal one pass: every scheme and kernel, left-padded batches, reordered rows."""

import random

import pytest
import torch

from tests.choices import slot

LENGTH = 12


def splits(count=4, seed=0):
    """Random ways to cut LENGTH tokens into parts, and the extremes."""
    draw = random.Random(seed)
    cuts = [sorted(draw.sample(range(1, LENGTH), draw.randint(1, LENGTH - 1))) for _ in range(count)]
    parts = [[b - a for a, b in zip([0, *cut], [*cut, LENGTH], strict=True)] for cut in cuts]
    return [*parts, [1] * LENGTH, [LENGTH], [LENGTH - 1, 1], [1, LENGTH - 1]]


def in_parts(model, tokens, split, real=None):
    """The logits of a row read piece by piece; the mask, where there is one, piece by piece as well."""
    state, start, out = model.new_state(len(tokens), tokens.shape[1]), 0, []
    for size in split:
        mask = None if real is None else real[:, start : start + size]
        mask = None if mask is not None and bool(mask.all()) else mask  # as a caller may leave it out in decode
        out.append(model(tokens[:, start : start + size], attention_mask=mask, state=state).logits)
        start += size
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("split", splits(), ids=str)
@torch.no_grad()
def test_any_split_equals_one_pass(tiny, ids, scheme, split):
    model, tokens = tiny(position=scheme), ids(2, LENGTH)
    assert (in_parts(model, tokens, split) - model(tokens).logits).abs().max() <= 1e-5


@torch.no_grad()
def test_every_kernel_reads_a_state(tiny, ids, pinned, kernel):
    model, tokens = tiny(position="alibi", attention=pinned(kernel), n_layers=1), ids(2, LENGTH)
    assert (in_parts(model, tokens, [5, 1, 5, 1]) - model(tokens).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("knobs", [{}, {"window": 3}, {"sinks": True}, {"softcap": 2.0, "window": 5}], ids=str)
@torch.no_grad()
def test_every_attention_reads_a_state(tiny, ids, scheme, attention, knobs):
    model, tokens = tiny(position=scheme, attention=slot("attention", attention, **knobs)), ids(2, LENGTH)
    whole = model(tokens).logits
    for split in ([5, 1, 5, 1], [1] * LENGTH, [2, 4, 6]):
        assert (in_parts(model, tokens, split) - whole).abs().max() <= 1e-5 * max(1, whole.abs().max())


@torch.no_grad()
def test_every_ffn_goes_with_a_state(tiny, ids, ffn):
    model, tokens = tiny(ffn=ffn), ids(2, LENGTH)
    whole = model(tokens).logits
    for split in ([5, 1, 5, 1], [1] * LENGTH, [2, 4, 6]):
        assert (in_parts(model, tokens, split) - whole).abs().max() <= 1e-5 * max(1, whole.abs().max())


@pytest.mark.parametrize("split", splits(), ids=str)
@torch.no_grad()
def test_any_split_of_a_left_padded_batch_equals_each_row_alone(tiny, ids, scheme, split):
    model, tokens, real = tiny(position=scheme), ids(3, LENGTH), torch.ones(3, LENGTH, dtype=torch.bool)
    pads = (0, 2, 6)
    for row, count in enumerate(pads):
        real[row, :count] = False
    logits = in_parts(model, tokens, split, real)
    assert logits.isfinite().all()
    for row, count in enumerate(pads):
        alone = model(tokens[row : row + 1, count:]).logits
        assert (logits[row : row + 1, count:] - alone).abs().max() <= 1e-5


@torch.no_grad()
def test_a_left_padded_batch_goes_with_a_state_in_every_ffn(tiny, ids, ffn):
    model, tokens, real = tiny(ffn=ffn), ids(2, LENGTH), torch.ones(2, LENGTH, dtype=torch.bool)
    real[1, :3] = False
    logits = in_parts(model, tokens, [5, 1, 5, 1], real)
    for row, count in enumerate((0, 3)):
        alone = model(tokens[row : row + 1, count:]).logits
        assert (logits[row : row + 1, count:] - alone).abs().max() <= 1e-5


@torch.no_grad()
def test_reordered_rows_go_on_from_their_new_past(tiny, ids, scheme):
    model, tokens, real = tiny(position=scheme), ids(3, LENGTH), torch.ones(3, LENGTH, dtype=torch.bool)
    real[1, :4] = False
    index = torch.tensor([1, 1, 0])
    state = model.new_state(3, LENGTH)
    model(tokens[:, :8], attention_mask=real[:, :8], state=state)
    state.reorder(index)
    rest = tokens[:, 8:]
    got = torch.cat([model(part, state=state).logits for part in rest.split((1, 3), dim=1)], dim=1)
    joined = torch.cat((tokens[index, :8], rest), dim=1)
    expected = model(joined, attention_mask=real[index]).logits[:, 8:]
    assert (got - expected).abs().max() <= 1e-5
    unmoved = model(tokens, attention_mask=real).logits[:, 8:]
    assert (got - unmoved).abs().max() > 1e-2


@torch.no_grad()
def test_positions_that_are_given_hold_in_the_state(tiny, ids):
    model, tokens = tiny(position="learned"), ids(1, 6)
    places = torch.tensor([[3, 4, 5, 9, 10, 11]])
    state = model.new_state(1, 6)
    parts = [model(tokens[:, a:b], positions=places[:, a:b], state=state).logits for a, b in ((0, 4), (4, 6))]
    whole = model(tokens, positions=places).logits
    assert (torch.cat(parts, 1) - whole).abs().max() <= 1e-5
    assert (whole - model(tokens).logits).abs().max() > 1e-2


@torch.no_grad()
def test_a_position_off_by_one_in_decode_is_seen(tiny, ids):
    model, tokens = tiny(position="learned"), ids(1, 6)
    state = model.new_state(1, 6)
    model(tokens[:, :5], state=state)
    late = model(tokens[:, 5:], positions=torch.tensor([[6]]), state=state).logits
    assert (late - model(tokens).logits[:, 5:]).abs().max() > 1e-2


@pytest.mark.parametrize("batch", [1, 2])
@torch.no_grad()
def test_one_token_decode_writes_no_mask_out(tiny, ids, monkeypatch, batch):
    from builder.model.mask import Mask

    def refuse(*_):
        raise AssertionError("a mask was written out")

    model, tokens = tiny(), ids(batch, LENGTH)
    expected = model(tokens).logits
    monkeypatch.setattr(Mask, "dense", refuse)
    assert (in_parts(model, tokens, [5] + [1] * 7) - expected).abs().max() <= 1e-5
    with pytest.raises(AssertionError, match="written out"):
        in_parts(model, tokens, [5, 7])


@torch.no_grad()
def test_the_last_position_alone_is_that_of_the_whole(tiny, ids, scheme):
    model, tokens = tiny(position=scheme), ids(2, LENGTH)
    whole, last = model(tokens), model(tokens, last_only=True)
    assert last.logits.shape == (2, 1, 37) and last.hidden.shape == (2, 1, 32)
    assert (last.logits - whole.logits[:, -1:]).abs().max() <= 1e-6
    assert (last.hidden - whole.hidden[:, -1:]).abs().max() <= 1e-6
    assert (whole.logits - model.head(whole.hidden)).abs().max() <= 1e-6


@torch.no_grad()
def test_a_cache_in_bfloat16_stays_close(tiny, ids, scheme):
    model, tokens = tiny(torch.bfloat16, position=scheme), ids(2, LENGTH)
    full = model(tokens).logits
    assert full.dtype == torch.bfloat16
    assert (in_parts(model, tokens, [5] + [1] * 7) - full).abs().max() <= 0.05 * full.abs().max()
