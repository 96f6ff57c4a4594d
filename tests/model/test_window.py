"""Sliding windows over a ring: any split equals the full pass, padded and reordered; the window bounds the bytes."""

import pytest
import torch

from builder.ledger import ledger
from builder.model import kv_state as states
from builder.model.span import Span
from tests.choices import slot

WINDOWS = (1, 2, 3, 5, 100)


def windowed(window, name="gqa"):
    return slot("attention", name, window=window)


def in_parts(model, tokens, split, real=None):
    state, start, out = model.new_state(*tokens.shape), 0, []
    for size in split:
        mask = None if real is None else real[:, start : start + size]
        out.append(model(tokens[:, start : start + size], attention_mask=mask, state=state).logits)
        start += size
    assert start == tokens.shape[1]
    return torch.cat(out, dim=1)


def splits(length):
    """One by one, all at once, and cuts at either side of each boundary."""
    yield [1] * length
    yield [length]
    for first in range(1, length):
        yield [first, length - first]
        yield [first, *[1] * (length - first)]
    if length > 4:
        yield [2, 3, length - 5] if length > 5 else [2, 3]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("position", ["rope", "alibi"])
@torch.no_grad()
def test_any_split_equals_the_full_pass_at_lengths_around_the_window(tiny, ids, window, position):
    model = tiny(attention=windowed(window), position=position)
    lengths = sorted({max(1, n) for n in (window - 1, window, window + 1, 2 * window, 2 * window + 1)} & set(range(12)))
    for length in (*lengths, 9):
        tokens = ids(2, length)
        whole = model(tokens).logits
        for split in splits(length):
            assert (in_parts(model, tokens, split) - whole).abs().max() <= 1e-5, (length, split)


@torch.no_grad()
def test_a_window_off_by_one_is_seen(tiny, ids):
    tokens = ids(2, 9)
    logits = [tiny(attention=windowed(window))(tokens).logits for window in (3, 4, None)]
    assert (logits[0] - logits[1]).abs().max() > 1e-2 and (logits[1] - logits[2]).abs().max() > 1e-2
    assert (logits[0] - logits[1])[:, :3].abs().max() == 0, "both see all of the first three"


@torch.no_grad()
def test_layers_may_differ(tiny, ids):
    local = windowed(3) | {"position": {"name": "rope", "theta": 100.0}}
    pattern = {"pattern": ["local+ffn", "attention+ffn"], "local": local, "n_layers": 4}
    model, tokens = tiny(**pattern), ids(2, 10)
    whole = model(tokens).logits
    for split in ([4, 1, 5], [1] * 10, [9, 1]):
        assert (in_parts(model, tokens, split) - whole).abs().max() <= 1e-5
    held = [layer.keys.shape[2] for layer in model.new_state(2, 10).layers]
    assert held == [3, 10, 3, 10]


@pytest.mark.parametrize("split", [[1] * 10, [6, 1, 1, 1, 1], [4, 6], [10], [2, 5, 1, 2]], ids=str)
@torch.no_grad()
def test_a_left_padded_batch_equals_each_row_alone(tiny, ids, scheme, split):
    model, tokens, real = tiny(attention=windowed(3), position=scheme), ids(3, 10), torch.ones(3, 10).bool()
    pads = (0, 2, 6)
    for row, count in enumerate(pads):
        real[row, :count] = False
    logits = in_parts(model, tokens, split, real)
    assert logits.isfinite().all()
    for row, count in enumerate(pads):
        alone = model(tokens[row : row + 1, count:]).logits
        assert (logits[row : row + 1, count:] - alone).abs().max() <= 1e-5
    assert (in_parts(model, tokens, split)[2:, 6:] - alone).abs().max() > 1e-2, "a dropped mask is seen"


@pytest.mark.parametrize("before", [2, 3, 5, 8])
@torch.no_grad()
def test_reordered_rows_go_on_from_their_new_past(tiny, ids, scheme, attention, before):
    model, tokens, real = tiny(attention=windowed(4, attention), position=scheme), ids(3, 11), torch.ones(3, 11).bool()
    real[1, :2] = False
    index, state = torch.tensor([1, 1, 0]), model.new_state(3, 11)
    for part, mask in zip(tokens[:, :before].split(2, 1), real[:, :before].split(2, 1), strict=True):
        model(part, attention_mask=mask, state=state)
    state.reorder(index)
    rest = tokens[:, before:]
    got = torch.cat([model(part, state=state).logits for part in rest.split((1, rest.shape[1] - 1), dim=1)], dim=1)
    joined = torch.cat((tokens[index, :before], rest), dim=1)
    expected = model(joined, attention_mask=real[index]).logits[:, before:]
    assert (got - expected).abs().max() <= 1e-5 * max(1, expected.abs().max())
    assert (got - model(tokens, attention_mask=real).logits[:, before:]).abs().max() > 1e-2


@pytest.mark.parametrize("lost", [{"turn": 0}, {"first": 0}], ids=str)
@torch.no_grad()
def test_a_ring_whose_order_is_not_told_is_seen(tiny, ids, monkeypatch, lost):
    """The keys of a turned ring carry another bias each, and padding is found at their slots."""
    model, tokens = tiny(attention=windowed(4), position="alibi"), ids(2, 11)
    whole = model(tokens).logits
    assert (in_parts(model, tokens, [1] * 11) - whole).abs().max() <= 1e-5
    monkeypatch.setattr(
        states, "Span", lambda first, length, turn=0: Span(**{"first": first, "length": length, "turn": turn} | lost)
    )
    assert (in_parts(model, tokens, [1] * 11) - whole).abs().max() > 1e-2


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("length", [1, 4, 50, 1000])
def test_bytes_are_bounded_by_the_window(tiny, attention, window, length):
    model, plain = tiny(attention=windowed(window, attention)), tiny(attention=windowed(None, attention))
    a_token = plain.new_state(1, 1).bytes()
    assert plain.new_state(3, length).bytes() == 3 * length * a_token
    assert model.new_state(3, length).bytes() == 3 * min(window, length) * a_token


def test_the_ledger_counts_the_window(spec):
    kv_heads, width, two, layers, float32 = 2, 8, 2, 2, 4
    costs = {w: ledger(spec(attention={"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 8, "window": w},
                            train_length=64, deploy_length=64)) for w in (None, 5)}  # fmt: skip
    a_token = kv_heads * width * two * layers * float32
    assert costs[None].state_bytes == 64 * a_token and costs[5].state_bytes == 5 * a_token
    assert costs[None].params == costs[5].params


@torch.no_grad()
def test_a_ring_forgets(tiny, ids):
    """Two pasts that agree on what two layers of window 3 can reach give the same next logits, and others don't."""
    model, tokens = tiny(attention=windowed(3)), ids(1, 12)
    other = tokens.clone()
    other[:, :7] = ids(1, 7, seed=5)
    assert not torch.equal(tokens, other)
    last = [in_parts(model, both, [6, 1, 1, 1, 1, 1, 1])[:, -1] for both in (tokens, other)]
    assert torch.equal(*last), "slot 11 reaches 4 slots back, to slot 7"
    other[:, 7] = (tokens[:, 7] + 1) % 37
    assert (in_parts(model, other, [12])[:, -1] - last[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["gqa", "mla"])
@torch.no_grad()
def test_a_prompt_longer_than_the_window_is_read_under_autocast(tiny, ids, name):
    model, tokens = tiny(attention=slot("attention", name, window=4)), ids(2, 12)
    full = model(tokens).logits
    with torch.autocast("cpu", torch.bfloat16):
        state = model.new_state(2, 12)
        parts = [model(part, state=state).logits for part in tokens.split((9, 1, 2), dim=1)]
    assert (torch.cat(parts, dim=1) - full).abs().max() <= 0.05 * full.abs().max()


def gaps(*rows):
    return torch.tensor([[int(mark) for mark in row] for row in rows]).bool()


BETWEEN = gaps("111110001111", "110111111100", "001100110111", "111111111111")


@pytest.mark.parametrize(
    "split", [[12], [8, 4], [5, 3, 4], [6, 6], [9, 3], [1] * 12, [2, 3, 7], [5, 1, 1, 1, 4]], ids=str
)
@torch.no_grad()
def test_padding_between_tokens_takes_no_place_in_a_window(tiny, ids, attention, scheme, split):
    """In one pass, and over a state, also where a pass holds nothing else or ends in it: as of each row alone."""
    model, tokens = tiny(attention=windowed(3, attention), position=scheme), ids(4, 12)
    logits = in_parts(model, tokens, split, BETWEEN)
    whole = model(tokens, attention_mask=BETWEEN).logits
    for row, real in enumerate(BETWEEN):
        alone = model(tokens[row : row + 1, real]).logits
        for found in (logits, whole):
            assert (found[row : row + 1, real] - alone).abs().max() <= 1e-5 * max(1, alone.abs().max())
    wide = tiny(attention=windowed(6, attention), position=scheme)(tokens[:1, BETWEEN[0]]).logits
    assert (wide[:, 7:] - whole[:1, BETWEEN[0]][:, 7:]).abs().max() > 1e-3, "a window that counted pads is seen"


@torch.no_grad()
def test_a_two_sided_window_counts_real_tokens(tiny, ids):
    model, tokens = tiny(kind="encoder", attention=windowed(3)), ids(4, 12)
    whole = model(tokens, attention_mask=BETWEEN).logits
    for row, real in enumerate(BETWEEN):
        assert (whole[row : row + 1, real] - model(tokens[row : row + 1, real]).logits).abs().max() <= 1e-5


@torch.no_grad()
def test_a_state_goes_back_over_padding_that_widened_its_rings(tiny, ids):
    model, tokens = tiny(attention=windowed(3)), ids(2, 12)
    state = model.new_state(2, 20)
    model(tokens[:, :5], state=state)
    mark = state.mark()
    rest = model(tokens[:, 5:], state=state).logits
    for _ in range(2):
        state.rewind(mark)
        model(tokens[:, :4], attention_mask=gaps("1100", "0011"), state=state)
    state.rewind(mark)
    assert (model(tokens[:, 5:], state=state).logits - rest).abs().max() <= 1e-5
