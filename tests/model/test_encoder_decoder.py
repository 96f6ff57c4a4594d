"""Encoders and encoder-decoders (C29): what is seen of a source, that it is read once, and states that keep it."""

import pytest
import torch

from builder.components.attention import Mixer
from builder.model.kv_state import KVState

TWO = {
    "kind": "encoder_decoder",
    "pattern": ("attention+cross+ffn",),
    "cross": {"name": "cross", "n_heads": 4, "n_kv_heads": 2, "d_head": 8},
    "encoder": {"n_layers": 2},
}
SCHEMES = ["none", "sinusoidal", "learned", "rope", "alibi", "t5"]


@pytest.fixture
def pair(tiny):
    """pair(**overrides): a tiny encoder-decoder in float64."""
    return lambda **more: tiny(torch.float64, **{**TWO, **more})


def padded(source, pads, pad=0):
    """The source with pads behind it, and where it is real."""
    filled = torch.nn.functional.pad(source, (0, pads), value=pad)
    return filled, torch.arange(filled.shape[1])[None].expand(len(source), -1) < source.shape[1]


@pytest.mark.parametrize("position", SCHEMES[1:])
def test_padding_of_the_source_changes_nothing(pair, ids, position):
    model, source, tokens = pair(position=position), ids(2, 6), ids(2, 5, seed=1)
    alone = model(tokens, source=source).logits
    for pad in (0, 7):
        longer, real = padded(source, 4, pad)
        assert (model(tokens, source=longer, source_mask=real).logits - alone).abs().max() < 1e-10
    assert (
        model(tokens, source=longer).logits - alone
    ).abs().max() > 1e-2  # the pads are felt where nothing hides them


@pytest.mark.parametrize("position", SCHEMES[1:])
@pytest.mark.parametrize("own", [None, {"name": "t5"}, {"name": "rope"}])
def test_any_split_equals_the_full_pass(pair, ids, position, own):
    model = pair(position=position, cross={**TWO["cross"], "position": own})
    source, tokens = ids(2, 6), ids(2, 7, seed=1)
    longer, real = padded(source, 2)
    full = model(tokens, source=longer, source_mask=real).logits
    for split in ((1,) * 7, (3, 4), (6, 1)):
        state, parts = model.new_state(2, 7), []
        for number, part in enumerate(tokens.split(split, dim=1)):
            beside = {} if number else {"source": longer, "source_mask": real}
            parts.append(model(part, state=state, **beside).logits)
        assert (torch.cat(parts, dim=1) - full).abs().max() < 1e-10


def test_cross_attention_equals_a_loop(pair, ids):
    """One layer's reading of a source against softmax(q k^T / sqrt(E)) v written out, query by query."""
    model, source, tokens = pair(), ids(1, 5), ids(1, 4, seed=1)
    cross = model.layers[0].get_submodule("cross")
    read = {}
    cross.register_forward_hook(lambda module, given, out: read.update(x=given[0], out=out))
    model(tokens, source=source)
    hidden, x = model.encoder(source, None, None, model.encoder.at(source, *[None] * 5, _aux()).aux).hidden, read["x"]
    q, k, v = (part.weight for part in (cross.q, cross.k, cross.v))
    wanted = []
    for t in range(x.shape[1]):
        heads = []
        for head in range(4):
            rows, kv = slice(8 * head, 8 * head + 8), slice(8 * (head // 2), 8 * (head // 2) + 8)
            scores = torch.stack([(q[rows] @ x[0, t]) @ (k[kv] @ h) / 8**0.5 for h in hidden[0]])
            heads.append((scores.softmax(0)[:, None] * torch.stack([v[kv] @ h for h in hidden[0]])).sum(0))
        wanted.append(cross.o.weight @ torch.cat(heads))
    assert (read["out"][0] - torch.stack(wanted)).abs().max() < 1e-12


def _aux():
    from builder.model.context import Aux

    return Aux()


def test_the_source_is_read_in_both_directions_and_the_target_is_not(pair, ids):
    model, source, tokens = pair(position="rope"), ids(1, 6), ids(1, 5, seed=1)
    other = source.clone()
    other[0, -1] = (other[0, -1] + 1) % 37
    states = [model.encoder(s, None, None, _aux()).hidden for s in (source, other)]
    assert (states[0][0, 0] - states[1][0, 0]).abs().max() > 1e-3  # the last token changes the first state
    later = tokens.clone()
    later[0, -1] = (later[0, -1] + 1) % 37
    one, two = model(tokens, source=source).logits, model(later, source=source).logits
    assert torch.equal(one[:, :-1], two[:, :-1]) and not torch.equal(one[:, -1], two[:, -1])


def test_the_encoder_runs_once_and_keys_are_made_once(pair, ids):
    model, source = pair(), ids(2, 6)
    runs, keys = [], []
    model.encoder.register_forward_hook(lambda *_: runs.append(1))
    cross = model.layers[0].get_submodule("cross")
    cross.k.register_forward_hook(lambda *_: keys.append(1))
    state = model.new_state(2, 12)
    model(ids(2, 2), source=source, state=state)
    for step in range(10):
        model(ids(2, 1, seed=step), state=state)
    assert len(runs) == len(keys) == 1
    assert state.source.layers[0].kept[0].shape == (2, 6, 2, 8)  # the length of the source, whatever was decoded


def test_a_state_holds_one_source(pair, ids):
    model, state = pair(), None
    with pytest.raises(ValueError, match="source: an encoder_decoder reads one"):
        model(ids(1, 3))
    state = model.new_state(1, 8)
    with pytest.raises(ValueError, match="the first pass over a state needs one"):
        model(ids(1, 3), state=state)
    model(ids(1, 3), source=ids(1, 4), state=state)
    with pytest.raises(ValueError, match="holds one already"):
        model(ids(1, 1), source=ids(1, 4), state=state)
    fresh = model.new_state(1, 8)
    second = model(ids(1, 3), source=ids(1, 4, seed=5), state=fresh).logits
    assert (second - model(ids(1, 3), source=ids(1, 4, seed=5)).logits).abs().max() < 1e-12  # nothing is stale


def test_a_state_is_picked_marked_and_rewound_with_its_source(pair, ids):
    model, source, tokens = pair(), ids(3, 6), ids(3, 4, seed=1)
    full = model(tokens, source=source).logits
    state = model.new_state(3, 8)
    model(tokens[:, :3], source=source, state=state)
    order = torch.tensor([2, 0, 1])
    picked = state.picked(order)
    assert (model(tokens[order, 3:], state=picked).logits - full[order, 3:]).abs().max() < 1e-10
    mark = state.mark()
    model(ids(3, 2, seed=9), state=state)
    state.rewind(mark)
    assert (model(tokens[:, 3:], state=state).logits - full[:, 3:]).abs().max() < 1e-10
    state.rewind(mark)
    state.reorder(order)
    assert (model(tokens[order, 3:], state=state).logits - full[order, 3:]).abs().max() < 1e-10


def test_bytes_are_those_of_tokens_and_source(pair, ids):
    model = pair()
    state = model.new_state(2, 8)
    own = sum(layer.bytes() for layer in state.layers)
    assert own == 2 * 2 * 2 * 8 * 2 * 8 * 8  # layers, keys and values, rows, tokens, heads, width, float64
    model(ids(2, 1), source=ids(2, 6), state=state)
    assert state.bytes() - own == 2 * 2 * 2 * 6 * 2 * 8 * 8
    assert all(isinstance(layer, KVState) for layer in state.layers)


def test_an_encoder_alone_sees_both_sides_and_no_padding(tiny, ids):
    model, tokens = tiny(torch.float64, kind="encoder"), ids(1, 6)
    other = tokens.clone()
    other[0, -1] = (other[0, -1] + 1) % 37
    out = model(tokens).logits
    assert (model(other).logits - out)[0, 0].abs().max() > 1e-3
    for pad in (0, 7):
        longer, real = padded(tokens, 3, pad)
        assert (model(longer, attention_mask=real).logits[:, :6] - out).abs().max() < 1e-12


@pytest.mark.parametrize("window", [None, 3])
def test_a_window_of_an_encoder_reaches_to_both_sides(tiny, ids, window):
    attention = {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 8, "window": window}
    model, tokens = tiny(torch.float64, kind="encoder", n_layers=1, attention=attention), ids(1, 9)
    out = model(tokens).logits
    moved = []
    for place in range(9):
        other = tokens.clone()
        other[0, place] = (other[0, place] + 1) % 37
        moved.append((model(other).logits - out)[0, 4].abs().max().item() > 1e-9)
    reach = range(9) if window is None else range(2, 7)
    assert moved == [place in reach for place in range(9)]


def test_a_prefix_is_seen_in_both_directions(tiny, ids):
    model, tokens = tiny(torch.float64, prefix=True), ids(1, 6)
    prefix = torch.tensor([[True, True, True, False, False, False]])
    out = model(tokens, prefix=prefix).logits
    for place, moves in ((2, [True] * 6), (4, [False] * 4 + [True] * 2)):
        other = tokens.clone()
        other[0, place] = (other[0, place] + 1) % 37
        change = (model(other, prefix=prefix).logits - out)[0].abs().amax(-1) > 1e-9
        assert change.tolist() == moves
    state = model.new_state(1, 6)
    parts = [model(tokens[:, :3], prefix=prefix[:, :3], state=state).logits]
    parts += [model(tokens[:, i : i + 1], state=state).logits for i in range(3, 6)]
    assert (torch.cat(parts, 1) - out).abs().max() < 1e-12
    assert (model(tokens).logits - out).abs().max() > 1e-3


def test_what_a_kind_does_not_read_is_refused(tiny, ids):
    with pytest.raises(ValueError, match="a decoder reads none"):
        tiny()(ids(1, 3), source=ids(1, 3))
    with pytest.raises(ValueError, match=r"model\.prefix: true"):
        tiny()(ids(1, 3), prefix=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="one source for each row"):
        tiny(**TWO)(ids(2, 3), source=ids(1, 3))


def test_layers_that_share_their_weights_keep_states_of_their_own(tiny, ids):
    """One set of weights in four layers computes what four layers with equal weights compute."""
    one, tokens = tiny(torch.float64, n_layers=4, shared=("attention+ffn",)), ids(2, 7)
    four = tiny(torch.float64, n_layers=4)
    four.load_state_dict(one.state_dict())
    assert sum(p.numel() for p in one.parameters()) < sum(p.numel() for p in four.parameters())
    full = one(tokens).logits
    assert (four(tokens).logits - full).abs().max() < 1e-12
    state = one.new_state(2, 7)
    parts = [one(part, state=state).logits for part in tokens.split((3, 1, 3), dim=1)]
    assert (torch.cat(parts, 1) - full).abs().max() < 1e-12
    mixers = [block.get_submodule("mixer") for block in one.layers]
    assert (
        all(isinstance(mixer, Mixer) and mixer is mixers[0] for mixer in mixers)
        and len(set(map(id, state.layers))) == 4
    )
