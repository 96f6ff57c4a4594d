"""Padding changes nothing: left-padded rows (C01), and rows of padding alone (C03), for every scheme and kernel."""

import pytest
import torch
from torch.nn import functional as F

from tests.choices import slot

PADS = 3


def padded(row, pad=0, pads=PADS):
    """(tokens, attention_mask) of one row behind `pads` pads."""
    tokens = torch.cat((torch.full((1, pads), pad), row), dim=1)
    return tokens, torch.arange(tokens.shape[1])[None] >= pads


def loss_and_gradients(model, tokens, real, rows):
    """The next-token loss over the real targets of the first `rows` rows, and every gradient."""
    model.zero_grad()
    logits = model(tokens, attention_mask=real).logits.float()
    counted = (real[:, 1:] & real[:, :-1])[:rows]
    loss = F.cross_entropy(logits[:rows, :-1][counted], tokens[:rows, 1:][counted])
    loss.backward()
    return logits, loss, {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("pads", [1, 3, 20])
@torch.no_grad()
def test_a_left_padded_row_equals_the_row(tiny, ids, scheme, pads):
    equals_the_row(tiny(position=scheme), ids(1, 5), pads)


@torch.no_grad()
def test_a_left_padded_row_equals_the_row_in_every_kernel(tiny, ids, pinned, kernel):
    equals_the_row(tiny(position="alibi", attention=pinned(kernel), n_layers=1), ids(1, 5), PADS)


@pytest.mark.parametrize("knobs", [{}, {"window": 3}, {"sinks": True}, {"softcap": 2.0}], ids=str)
@torch.no_grad()
def test_a_left_padded_row_equals_the_row_in_every_attention(tiny, ids, scheme, attention, knobs):
    equals_the_row(tiny(position=scheme, attention=slot("attention", attention, **knobs)), ids(1, 5), PADS)


@torch.no_grad()
def test_a_left_padded_row_equals_the_row_in_every_ffn(tiny, ids, ffn):
    equals_the_row(tiny(ffn=ffn), ids(1, 5), PADS)


def equals_the_row(model, row, pads):
    expected = model(row).logits
    outputs = []
    for pad in (0, 7):
        tokens, real = padded(row, pad, pads)
        logits = model(tokens, attention_mask=real).logits
        assert logits.isfinite().all()
        assert (logits[:, pads:] - expected).abs().max() <= 1e-5 * max(1, expected.abs().max())
        outputs.append(logits[:, pads:])
    assert (outputs[0] - outputs[1]).abs().max() == 0, "the pad's id must not matter"


def test_a_padded_row_in_a_batch_equals_itself_alone(tiny, ids, scheme):
    model, rows = tiny(position=scheme), ids(2, 8)
    tokens, real = rows.clone(), torch.ones(2, 8, dtype=torch.bool)
    real[1, :PADS] = False
    logits = model(tokens, attention_mask=real).logits
    assert (logits[:1] - model(rows[:1]).logits).abs().max() <= 1e-5
    assert (logits[1:, PADS:] - model(rows[1:, PADS:]).logits).abs().max() <= 1e-5


def test_right_padding_changes_nothing_before_it(tiny, ids, scheme):
    model, row = tiny(position=scheme), ids(1, 8)
    real = torch.arange(8)[None] < 5
    assert (model(row, attention_mask=real).logits[:, :5] - model(row[:, :5]).logits).abs().max() <= 1e-5


def test_a_dropped_mask_is_seen(tiny, ids, scheme):
    model, row = tiny(position=scheme), ids(1, 5)
    tokens, real = padded(row)
    assert (model(tokens).logits[:, PADS:] - model(row).logits).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_positions_counted_from_the_first_pad_are_seen(tiny, ids, name):
    model, row = tiny(position=name), ids(1, 5)
    tokens, real = padded(row)
    shifted = model(tokens, attention_mask=real, positions=torch.arange(8)[None]).logits
    assert (shifted[:, PADS:] - model(row).logits).abs().max() > 1e-2


def test_a_row_of_padding_alone_spoils_nothing(tiny, ids, pinned, scheme, trained):
    model = tiny(position=scheme, attention=pinned(trained))
    tokens, real = ids(3, 9), torch.ones(3, 9, dtype=torch.bool)
    real[1, :PADS] = False
    real[2] = False
    logits, loss, gradients = loss_and_gradients(model, tokens, real, 2)
    _, expected_loss, expected = loss_and_gradients(model, tokens[:2], real[:2], 2)
    assert logits.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients.values())
    assert abs(loss - expected_loss) <= 1e-6
    for name, gradient in gradients.items():
        assert (gradient - expected[name]).abs().max() <= 1e-6, name
        assert gradient.abs().max() > 0, f"{name} is not trained"


def test_a_row_of_padding_alone_spoils_nothing_in_any_ffn(tiny, ids, ffn):
    model = tiny(ffn=ffn)
    tokens, real = ids(3, 9), torch.ones(3, 9, dtype=torch.bool)
    real[1, :PADS], real[2] = False, False
    logits, loss, gradients = loss_and_gradients(model, tokens, real, 2)
    _, expected_loss, expected = loss_and_gradients(model, tokens[:2], real[:2], 2)
    assert logits.isfinite().all() and abs(loss - expected_loss) <= 1e-6
    assert all((gradient - expected[name]).abs().max() <= 1e-6 for name, gradient in gradients.items())


def test_a_row_of_padding_alone_under_autocast(tiny, ids, pinned, scheme, trained):
    model = tiny(position=scheme, attention=pinned(trained))
    tokens, real = ids(3, 9), torch.ones(3, 9, dtype=torch.bool)
    real[1, :PADS] = False
    real[2] = False
    with torch.autocast("cpu", torch.bfloat16):
        logits, _, gradients = loss_and_gradients(model, tokens, real, 2)
        _, _, expected = loss_and_gradients(model, tokens[:2], real[:2], 2)
    assert logits.isfinite().all()
    for name, gradient in gradients.items():
        assert gradient.isfinite().all()
        assert (gradient - expected[name]).abs().max() <= 1e-2 * expected[name].abs().max(), name


def test_a_row_of_padding_that_counts_is_seen(tiny, ids):
    model, tokens, real = tiny(), ids(3, 9), torch.ones(3, 9, dtype=torch.bool)
    *_, gradients = loss_and_gradients(model, tokens, real, 3)
    *_, expected = loss_and_gradients(model, tokens[:2], real[:2], 2)
    assert max((gradients[name] - expected[name]).abs().max() for name in gradients) > 1e-2
