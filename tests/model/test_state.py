"""What generation remembers: slots filled in place, exact bytes, reordered rows, padding over several calls."""

import pytest
import torch

from builder.model.assemble import build
from builder.model.kv_state import KVState
from builder.model.span import Span
from builder.model.state import State
from tests.choices import mixer_slots

CPU = torch.device("cpu")


def kv(batch=3, length=6, heads=2, width=4, dtype=torch.float32, window=None):
    return KVState(batch, length, (heads, width), (heads, width), window=window, device=CPU, dtype=dtype)


def pair(batch=3, tokens=2):
    return torch.randn(2, batch, tokens, 2, 4).unbind()


def test_what_is_appended_comes_back_in_order():
    state, parts = kv(), [pair(tokens=n) for n in (2, 1, 3)]
    for end, part in zip((2, 3, 6), parts, strict=True):
        keys, values, span = state.append(*part)
        assert keys.shape[1] == values.shape[1] == end and span == Span(0, end)
    assert torch.equal(keys, torch.cat([k for k, _ in parts], 1))
    assert torch.equal(values, torch.cat([v for _, v in parts], 1))


def test_it_is_filled_in_place():
    state = kv()
    places = state.keys.data_ptr(), state.values.data_ptr()
    for _ in range(3):
        keys, values, _ = state.append(*pair())
        assert (keys.data_ptr(), values.data_ptr()) == places
    state.reorder(torch.tensor([2, 0, 0]))
    assert (state.keys.data_ptr(), state.values.data_ptr()) == places


def test_more_than_it_holds_is_refused_with_both_numbers():
    state = kv(length=3)
    state.append(*pair())
    with pytest.raises(ValueError, match="holds 3 tokens and 4"):
        state.append(*pair())
    state.append(*pair(tokens=1))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float64, 8)])
def test_bytes_are_exact(dtype, size):
    assert kv(dtype=dtype).bytes() == 2 * 3 * 6 * 2 * 4 * size
    assert State([kv(dtype=dtype)] * 2, 3, 6, CPU).bytes() == 2 * 2 * 3 * 6 * 2 * 4 * size


def test_rows_follow_a_reordering():
    state = kv()
    k, v = pair()
    state.append(k, v)
    state.reorder(torch.tensor([2, 0, 0]))
    keys, values, _ = state.append(*pair())
    assert torch.equal(keys[:, :2], k[[2, 0, 0]]) and torch.equal(values[:, :2], v[[2, 0, 0]])
    assert not torch.equal(keys[:, :2], k)


def test_a_state_notes_positions_and_padding_over_calls():
    state = State([], 2, 6, CPU)
    assert state.counted is None
    state.write(torch.tensor([[0, 1]]), None)
    state.length = 2
    assert state.counted is None, "no padding so far"
    real = torch.tensor([[False, True], [True, True]])
    state.write(torch.tensor([[0, 2], [2, 3]]), real)
    state.length = 4
    assert state.counted.tolist() == [3, 4]
    state.write(torch.tensor([[3], [4]]), None)
    state.length = 5
    assert state.counted.tolist() == [4, 5], "a pass without a mask is real everywhere"
    assert state.positions[:, :5].tolist() == [[0, 1, 0, 2, 3], [0, 1, 2, 3, 4]]
    state.reorder(torch.tensor([1, 1]))
    assert state.counted.tolist() == [5, 5] and state.positions[0, :5].tolist() == [0, 1, 2, 3, 4]


def test_the_model_fills_one_state_in_place(tiny, ids):
    model = tiny()
    state = model.new_state(2, 8)
    places = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in state.layers]
    for part in ids(2, 8).split((4, 1, 3), dim=1):
        model(part, state=state)
    assert [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in state.layers] == places
    keys_and_values, layers, rows, slots, kv_heads, width, float32 = 2, 2, 2, 8, 2, 8, 4
    assert state.length == 8
    assert state.bytes() == keys_and_values * layers * rows * slots * kv_heads * width * float32


def test_a_state_follows_the_models_dtype(tiny):
    assert tiny(torch.bfloat16).new_state(1, 4).layers[0].keys.dtype == torch.bfloat16


def test_one_token_too_many_is_refused_before_anything_is_written(tiny, ids):
    model = tiny()
    state = model.new_state(2, 8)
    model(ids(2, 7), state=state)
    with pytest.raises(ValueError, match="room for 8 tokens, 7 are in it and 2 more"):
        model(ids(2, 2), state=state)
    assert state.length == 7
    model(ids(2, 1), state=state)
    with pytest.raises(ValueError, match="room for 8"):
        model(ids(2, 1), state=state)


@pytest.mark.parametrize("rows", [1, 3])
def test_another_number_of_rows_is_refused(tiny, ids, rows):
    model = tiny()
    with pytest.raises(ValueError, match=f"holds 2 rows and the tokens have {rows}"):
        model(ids(rows, 3), state=model.new_state(2, 8))


@pytest.mark.parametrize("name", ["attention_mask", "positions", "segments"])
def test_an_argument_of_another_shape_is_refused_by_its_name(tiny, ids, name):
    with pytest.raises(ValueError, match=rf"{name} has shape \(2, 6\) and the tokens of this pass \(2, 5\)"):
        tiny()(ids(2, 5), **{name: torch.ones(2, 6, dtype=torch.long)})


@pytest.mark.parametrize("index", [[0], [0, 1, 0], [0.0, 1.0], [True, False]], ids=str)
def test_rows_change_places_by_an_index_of_all_rows_alone(tiny, ids, index):
    state = tiny().new_state(2, 8)
    with pytest.raises(ValueError, match="the former row of each of the 2 rows"):
        state.reorder(torch.tensor(index))


def test_the_state_of_a_deeper_model_is_refused(tiny, ids):
    with pytest.raises(ValueError, match="made for 3 layers and this model has 2"):
        tiny()(ids(2, 5), state=tiny(n_layers=3).new_state(2, 8))


WRONG = {
    "no tokens": ((2, 0), {}, "at least one token a row"),
    "a row alone": ((5,), {}, r"shape \(5,\)"),
    "three axes": ((2, 5, 1), {}, r"shape \(2, 5, 1\)"),
    "an id too large": ((2, 5), {"add": 37}, "rows for 0 to 36"),
    "a mask to be added": ((2, 5), {"attention_mask": torch.zeros(2, 5)}, "attention_mask has dtype torch.float32"),
    "halves of positions": (
        (2, 5),
        {"positions": torch.ones(2, 5)},
        "positions has dtype torch.float32; give integers",
    ),
}


@pytest.mark.parametrize(("shape", "given", "told"), WRONG.values(), ids=WRONG)
@torch.no_grad()
def test_what_a_pass_cannot_read_is_told(tiny, shape, given, told):
    tokens, more = torch.zeros(shape, dtype=torch.long), dict(given)
    with pytest.raises(ValueError, match=told):
        tiny()(tokens + more.pop("add", 0), **more)


@pytest.mark.parametrize("mixer", mixer_slots().values(), ids=mixer_slots())
@torch.no_grad()
def test_a_pass_on_meta_gives_shapes(spec, mixer):
    model = build(spec(mixer=mixer, pattern=["mixer+ffn"]), device="meta")
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    assert model(tokens).logits.shape == (2, 5, 37)
