"""The state of every mixer goes back to where it was, and lives on as several: in each case nothing else is noticed."""

import pytest
import torch

from tests.choices import mixer_slots

MIXERS = mixer_slots()


@pytest.fixture(params=MIXERS)
def model(request, tiny):
    """A layer of the mixer, and one that attends to all."""
    return tiny(torch.float64, pattern=("mixer+ffn", "attention"), mixer=MIXERS[request.param])


def prefilled(model, tokens, padded):
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[0, :2] = False
    state = model.new_state(len(tokens), 20)
    model(tokens, attention_mask=real if padded else None, state=state)
    return state


def read(model, tokens, state, *lengths):
    return torch.cat([model(part, state=state).logits for part in tokens.split(lengths, dim=1)], dim=1)


def far(a, b):
    return (a - b).abs().max() > 1e-3


@pytest.mark.parametrize(("before", "padded"), [(3, True), (7, False)])
@torch.no_grad()
def test_what_was_taken_back_was_never_read(model, ids, before, padded):
    first, more = prefilled(model, ids(3, before), padded), ids(3, 9, seed=1)
    right = read(model, more, first.copy(), 1, 3, 5)
    for ahead, others in ((4, (1, 1, 1)), (5, (5,)), (None, (2, 7))):
        state = first.copy()
        mark = state.mark(ahead)
        for seed in (2, 3):
            wrong = read(model, ids(3, sum(others), seed=seed), state, *others)
            late = state.copy()
            assert state.rewind(mark) == 0 and state.length == before
        assert far(wrong, right[:, : wrong.shape[1]])
        assert far(read(model, more[:, :2], late, 2), right[:, :2]), "a state that isn't rewound is felt"
        assert (read(model, more, state, 1, 3, 5) - right).abs().max() < 1e-10
    with pytest.raises(ValueError, match="at most 2 more to be taken back, and the state holds"):
        mark = first.mark(2)
        read(model, more, first, 4, 5)
        first.rewind(mark)


@torch.no_grad()
def test_the_first_tokens_since_the_mark_stay_where_a_layer_can_part_them(model, ids):
    state, more = prefilled(model, ids(3, 5), True), ids(3, 9, seed=1)
    right = read(model, more, state.copy(), 9)
    for kept in (0, 1, 3):
        here = state.copy()
        mark = here.mark(3)
        tokens = torch.cat((more[:, :kept], ids(3, 3 - kept, seed=2)), 1)
        read(model, tokens, here, 3)
        stayed = here.rewind(mark, kept)
        assert stayed in (0, kept) and here.length == 5 + stayed
        assert (read(model, more[:, stayed:], here, 9 - stayed) - right[:, stayed:]).abs().max() < 1e-10


@torch.no_grad()
def test_rows_of_a_state_go_on_by_themselves(model, ids):
    state, more = prefilled(model, ids(2, 6), True), ids(6, 9, seed=1)
    wide = state.expand(3)
    assert wide.rows == 6 and wide.bytes() == 3 * state.bytes()
    found = read(model, more, wide, 2, 7)
    for row in range(3):
        one = state.copy()
        assert (read(model, more[row::3], one, 9) - found[row::3]).abs().max() < 1e-10
    assert state.length == 6 and far(found[0], found[1])
    unasked = state.copy()
    unasked.reorder(torch.tensor([1, 0]))
    assert far(read(model, more[::3], unasked, 9), found[::3])
