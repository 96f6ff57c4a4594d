"""The recurrent room: torch's own modules and plain loops as oracles, first values, packed documents, sizes."""

from typing import Any

import pytest
import torch
from torch import nn

from builder import build, compose, load, registry
from builder.components import recurrent
from builder.model.mask import Mask

D, H, T = 32, 24, 11
OURS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
KNOBS = [("rnn", {}), ("rnn", {"activation": "relu"}), ("gru", {}), ("lstm", {})]


@pytest.fixture
def cell(config, site, wide):
    """cell(name, **knobs): a recurrent mixer of width 24 in float64, drawn wide."""

    def make(name, **knobs):
        chosen = config("recurrent", name, d_hidden=H, **knobs)
        return wide(chosen.component(chosen, site()))

    return make


def torchs(ours, name, knobs):
    """torch's module with the weights of ours, under its names."""
    told = {"nonlinearity": knobs["activation"]} if knobs else {}
    theirs = OURS[name](D, H, batch_first=True, **told).double()
    parts = {"weight_ih_l0": ours.x.weight, "bias_ih_l0": ours.x.bias}
    theirs.load_state_dict(parts | {"weight_hh_l0": ours.h.weight, "bias_hh_l0": ours.h.bias})
    return theirs


def gates(ours, x, h, g):
    """W x + b and U h + c of gate number g."""
    rows = slice(g * H, (g + 1) * H)
    return ours.x.weight[rows] @ x + ours.x.bias[rows], ours.h.weight[rows] @ h + ours.h.bias[rows]


def loop(ours, name, x, activation=torch.tanh):
    """What a cell gives for one row x (T, D), token by token, from the formulas of its papers."""
    h, c, out = x.new_zeros(H), x.new_zeros(H), []
    for token in x:
        read = [gates(ours, token, h, g) for g in range(GATES[name])]
        if name == "rnn":
            h = activation(read[0][0] + read[0][1])
        elif name == "gru":
            r, z = ((x + u).sigmoid() for x, u in read[:2])
            n = (read[2][0] + r * read[2][1]).tanh()
            h = (1 - z) * n + z * h
        else:
            i, f, g, o = (x + u for x, u in read)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        out.append(ours.o.weight @ h)
    return torch.stack(out)


@pytest.mark.parametrize(("name", "knobs"), KNOBS, ids=str)
def test_it_is_torchs_own_module_behind_an_output_map(cell, context, name, knobs):
    ours, x = cell(name, **knobs), torch.randn(3, T, D, dtype=torch.float64)
    expected = torchs(ours, name, knobs)(x)[0] @ ours.o.weight.T
    assert torch.allclose(ours(x, context(T)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "knobs"), KNOBS, ids=str)
def test_it_is_the_loop_of_its_paper(cell, context, name, knobs):
    ours, x = cell(name, **knobs), torch.randn(1, T, D, dtype=torch.float64)
    activation = torch.relu if knobs else torch.tanh
    out, expected = ours(x, context(T))[0], loop(ours, name, x[0], activation)
    assert torch.allclose(out, expected, rtol=0, atol=1e-12)
    with torch.no_grad():  # the control: a single weight of what is carried is felt
        ours.h.weight[-1, 0] += 1e-6
    assert not torch.allclose(ours(x, context(T))[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("padded", [False, True])
def test_packed_documents_are_those_read_apart(cell, context, name, padded):
    ours, x = cell(name), torch.randn(3, T, D, dtype=torch.float64, requires_grad=True)
    segments = torch.tensor([[0] * 4 + [1] + [2] * 6, [5] * 11, [3, 1, 4, 1, 5, 9, 9, 9, 2, 2, 7]])
    real = torch.rand(3, T) > 0.3 if padded else torch.ones(3, T, dtype=torch.bool)
    out = ours(x, context(T, mask=Mask(segments=segments, real=real if padded else None)))
    expected = torch.zeros_like(out)
    for row in range(3):
        starts = [t for t in range(T) if t == 0 or segments[row, t] != segments[row, t - 1]]
        for first, end in zip(starts, [*starts[1:], T], strict=True):
            kept = torch.arange(first, end)[real[row, first:end]]
            if len(kept):
                expected[row, kept] = ours(x[row : row + 1, kept], context(len(kept)))[0]
    assert torch.allclose(out, expected, rtol=0, atol=1e-12)
    (ours_grad,) = torch.autograd.grad(out.square().sum(), x, retain_graph=True)
    (right,) = torch.autograd.grad(expected.square().sum(), x)
    assert torch.allclose(ours_grad, right, rtol=0, atol=1e-10)
    whole = ours(x, context(T))
    assert not torch.allclose(out[0, 4:], whole[0, 4:])  # the control: without segments they do leak


@pytest.mark.parametrize("name", OURS)
def test_rows_go_on_from_their_own_last_token(cell, context, name):
    """Rows of a padded batch that end at different tokens, one of them with nothing to read in the second pass."""
    ours, x = cell(name), torch.randn(3, T, D, dtype=torch.float64)
    real = torch.ones(3, T, dtype=torch.bool)
    real[0, :3], real[1, 5:], real[2, 2:4] = False, False, False
    state = ours.new_state(3, T, device=x.device, dtype=x.dtype)
    out = [
        ours(x[:, past:end], context(end - past, mask=Mask(real=real[:, :end], past=past), state=state))
        for past, end in ((0, 6), (6, 9), (9, 10), (10, 11))
    ]
    for row, told in enumerate(real):
        alone = ours(x[row : row + 1, told], context(int(told.sum())))[0]
        assert torch.allclose(torch.cat(out, 1)[row, told], alone, rtol=0, atol=1e-12)
        assert not torch.cat(out, 1)[row, ~told].any()


@pytest.mark.parametrize("name", OURS)
def test_first_values(config, site, name):
    chosen = config("recurrent", name, d_hidden=H)
    ours = chosen.component(chosen, site())
    for weight in ours.h.weight.chunk(GATES[name]):
        assert torch.allclose(weight @ weight.T, torch.eye(H), atol=1e-5)
    opened = torch.zeros(GATES[name], H)
    if name == "lstm":
        opened[1] = 1.0  # the second gate forgets
    assert ours.h.bias.equal(opened.flatten())


def test_the_forget_gate_starts_where_it_is_told(config, site):
    chosen = config("recurrent", "lstm", forget_bias=3.0)
    assert chosen.component(chosen, site()).h.bias.chunk(4)[1].eq(3.0).all()


@pytest.mark.parametrize("name", OURS)
def test_first_values_survive_the_model_wide_init(name):
    knobs = [f"model/recurrent={name}", "model.pattern=[recurrent]", "model.d_model=32", "model.n_layers=2"]
    spec = load(compose(knobs)).model.model_copy(update={"vocab_size": 40})
    first, again = (build(spec, seed=3) for _ in range(2))
    for layer in first.layers:
        mixer: Any = layer.get_submodule("mixer")
        for weight in mixer.h.weight.chunk(GATES[name]):
            assert torch.allclose(weight @ weight.T, torch.eye(32), atol=1e-5)
        assert mixer.x.weight.std().item() == pytest.approx(0.02, rel=0.1)  # and the others are the init's
        assert bool(mixer.h.bias.any()) == (name == "lstm")
    assert all(a.equal(b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("name", OURS)
def test_sizes(config, site, name):
    """4 gates of an LSTM at width H: 4 (D H + H^2 + 2 H) numbers and D H behind; the state holds h and c."""
    chosen = config("recurrent", name)
    ours, g = chosen.component(chosen, site(d_model=16)), GATES[name]
    assert sum(p.numel() for p in ours.parameters()) == g * (16 * 16 + 16 * 16 + 2 * 16) + 16 * 16
    assert ours.flops(5) == 2 * 5 * (g * 2 * 16 * 16 + 16 * 16)
    vectors = 2 if name == "lstm" else 1
    for length in (4, 4000):
        state = ours.new_state(3, length, device=torch.device("cpu"), dtype=torch.bfloat16)
        assert state.bytes() == 3 * vectors * 16 * 4  # in float32, whatever the model's dtype


@pytest.mark.parametrize("name", OURS)
def test_a_model_that_sees_both_ways_is_told_that_it_reads_one_way(config, site, name):
    chosen = config("recurrent", name)
    verdicts = {causal: list(chosen.component.check(chosen, site(causal=causal))) for causal in (False, True)}
    assert all(f.status.name == "PASS" for told in verdicts.values() for f in told)
    assert [any("left to right" in f.rule for f in told) for told in verdicts.values()] == [True, False]


def test_every_cell_is_here():
    assert set(registry.names("recurrent")) == set(OURS)


@pytest.mark.parametrize("left", [True, False])
def test_a_compiler_leaves_the_kernel_whole(cell, context, monkeypatch, left):
    """The control: not set aside, every step is written out, a dozen operations each."""
    from torch._dynamo.backends.common import aot_autograd

    counts = []

    def count(graph, examples):
        counts.append(len(graph.graph.nodes))
        return graph

    if not left:
        monkeypatch.setattr(recurrent, "_aside", lambda function: function)
    ours, x = cell("gru"), torch.randn(2, 40, D, dtype=torch.float64)
    segments = torch.arange(40).expand(2, -1) // 15
    for ctx in (context(40), *([context(40, mask=Mask(segments=segments))] if left else [])):
        right = ours(x, ctx)
        torch._dynamo.reset()
        compiled = torch.compile(ours, backend=aot_autograd(fw_compiler=count, bw_compiler=count))
        assert torch.allclose(compiled(x, ctx), right, rtol=0, atol=1e-12)
    torch._dynamo.reset()
    assert (max(counts) < 100) == left
