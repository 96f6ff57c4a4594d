"""Linear attention and retention against the quadratic forms of their papers: whole, cut, padded and packed."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from builder.components.ssm import linear_attention
from builder.components.ssm._chunks import CHUNK
from builder.components.ssm._weighted_sum import weighted_sum
from builder.model.mask import Mask
from builder.model.positions import Positions, count_within

D, H, E = 32, 4, 8
LENGTHS = [1, 2, 3, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 9]
RETENTION = {"feature": "none", "decay": "retention", "divide": "norm", "gate": True}
KINDS = {
    "linear": {},
    "linear, decayed": {"decay": "retention"},
    "linear, normed": {"divide": "norm"},
    "linear, gated": {"gate": True},
    "retention": RETENTION,
}
SCHEMES = ["none", "rope"]


@pytest.fixture
def made(config, site, wide, context):
    """made(kind, scheme) -> (the mixer in float64, drawn wide; its pass over x)."""

    def make(kind, scheme):
        position = config("position", scheme)
        here = site(position=position)
        chosen = config("ssm", "linear_attention", n_heads=H, **KINDS[kind])
        mixer, turn = wide(chosen.component(chosen, here)), position.component(position, here)

        def run(x, segments=None, real=None, past=0, state=None):
            seen = torch.ones(len(x), past + x.shape[1], dtype=torch.bool) if real is None else real
            ids = count_within(torch.zeros_like(seen) if segments is None else segments, seen)[:, past:]
            mask = Mask(real=real, segments=segments, past=past)
            return mixer(x, context(x.shape[1], mask=mask, state=state, position=turn, positions=Positions(ids)))

        return mixer, turn, run

    return make


def quadratic(mixer, turn, x, *, summed, feature, retention):
    """One row x (T, D) by the papers' sums over pairs of tokens, with the T x T matrix of decays."""
    length = len(x)
    q, k, v = (part(x).unflatten(-1, (H, E)) for part in (mixer.q, mixer.k, mixer.v))  # (T, H, E)
    if feature:
        q, k = (torch.where(part > 0, part + 1, part.exp()) for part in (q, k))
    ids, rows = Positions(torch.arange(length)[None]), []
    turned = [turn.rotate(part[None], ids)[0] for part in (q, k)]
    for h in range(H):
        rate = 1 - 2.0 ** (-5 - h) if retention else 1.0
        left = torch.where(torch.arange(length) <= torch.arange(length)[:, None], rate ** _behind(length), 0.0)
        read = (turned[0][:, h] @ turned[1][:, h].T * left) @ v[:, h]
        weights = (q[:, h] @ k[:, h].T * left).sum(1, keepdim=True)
        rows.append(read / (weights + 1e-6) if summed else read / E**0.5)
    y = torch.stack(rows, 1)  # (T, H, E)
    if not summed:
        y = y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * mixer.norm.weight
    y = y.flatten(1)
    return mixer.o(y if mixer.gate is None else y * nn.functional.silu(mixer.gate(x)))


def _behind(length):
    """How far s stands behind t, (T, T) in float64."""
    place = torch.arange(length, dtype=torch.float64)
    return (place[:, None] - place).clamp_min(0)


def expected(kind, mixer, turn, x, **changes):
    knobs = {"divide": "sum", "feature": "elu", "decay": "none"} | KINDS[kind] | changes
    told = {"summed": knobs["divide"] == "sum", "feature": knobs["feature"] == "elu"}
    return quadratic(mixer, turn, x, **told, retention=knobs["decay"] == "retention")


def near(ours, right, tolerance=1e-10):
    assert (ours - right).abs().max() <= tolerance * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_quadratic_form(made, kind, scheme):
    mixer, turn, run = made(kind, scheme)
    for length in (1, 2, 17, CHUNK + 3):
        x = torch.randn(1, length, D, dtype=torch.float64)
        near(run(x)[0], expected(kind, mixer, turn, x[0]))
    other = "none" if KINDS[kind].get("decay") else "retention"
    assert (run(x)[0] - expected(kind, mixer, turn, x[0], decay=other)).abs().max() > 1e-4  # the control


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_cut_padded_and_packed_it_stays_the_same(made, kind, scheme):
    mixer, turn, run = made(kind, scheme)
    x = torch.randn(2, 12, D, dtype=torch.float64)
    real = torch.ones(2, 12, dtype=torch.bool)
    real[0, [0, 1, 2, 7]], real[1, [4, 10, 11]] = False, False
    state, parts = mixer.new_state(2, 12, device=x.device, dtype=x.dtype), []
    for past, end in ((0, 2), (2, 6), (6, 7), (7, 8), (8, 12)):
        parts.append(run(x[:, past:end], real=real[:, :end], past=past, state=state))
    segments = torch.tensor([[0] * 5 + [1] * 7, [2] * 1 + [3] * 11])
    packed = run(x, segments=segments, real=real)
    for row in range(2):
        right = expected(kind, mixer, turn, x[row, real[row]])
        near(torch.cat(parts, 1)[row, real[row]], right)
        near(run(x, real=real)[row, real[row]], right)
        for document in segments[row].unique():
            here = (segments[row] == document) & real[row]
            if here.any():
                near(packed[row, here], expected(kind, mixer, turn, x[row, here]))
    assert not packed[~real].any()


def loop(q, k, v, log, state):
    """The recurrence, token by token."""
    out = []
    for t in range(q.shape[1]):
        state = log[:, t, :, None, None].exp() * state + k[:, t, :, :, None] * v[:, t, :, None, :]
        out.append((q[:, t, :, None, :] @ state)[:, :, 0])
    return torch.stack(out, 1), state


def inputs(length, rate=0.5):
    """q, k, v, a decay of every token and head, and a state, in float64 with gradients."""
    shapes = [(2, length, 3, 6), (2, length, 3, 6), (2, length, 3, 5), (2, length, 3), (2, 3, 6, 5)]
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    given[3] = -rate * given[3].exp()
    return [part.requires_grad_() for part in given]


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_are_the_recurrence_and_so_are_their_gradients(length):
    given = inputs(length)
    ours, right = weighted_sum(*given), loop(*given)
    for found, theirs in zip(ours, right, strict=True):
        near(found, theirs)
    weight = torch.randn_like(ours[0])
    sums = [(out * weight).sum() + last.square().sum() for out, last in (ours, right)]
    for found, theirs in zip(*(torch.autograd.grad(total, given) for total in sums), strict=True):
        near(found, theirs, 1e-9)


@pytest.mark.parametrize("at", [1, 40, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_document_starts_from_nothing(at):
    given, length = inputs(2 * CHUNK + 9, rate=1e-3), 2 * CHUNK + 9
    starts = torch.zeros(2, length, dtype=torch.bool)
    starts[:, [0, at]] = True
    ours, last = weighted_sum(*given[:4], state=None, starts=starts)
    nothing = torch.zeros_like(given[4])
    near(ours[:, :at], loop(*[part[:, :at] for part in given[:4]], state=nothing)[0])
    right, theirs = loop(*[part[:, at:] for part in given[:4]], state=nothing)
    near(ours[:, at:], right)
    near(last, theirs)
    assert (ours - weighted_sum(*given[:4], state=None)[0])[:, at:].abs().max() > 1e-3


def test_heads_forget_at_the_rates_of_the_paper():
    """RetNet's gamma of 8 heads, 1 - 2^-5 .. 1 - 2^-12."""
    rates = linear_attention._retention(8, torch.zeros(1)).exp()
    assert rates.dtype == torch.float32
    assert torch.allclose(rates, 1 - torch.tensor([0.03125 / 2**h for h in range(8)]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("knobs", "told"),
    [({"feature": "none"}, "sum to 0"), ({"norm": {"name": "rmsnorm"}}, "divide is sum")],
    ids=str,
)
def test_what_does_not_fit_is_refused(config, knobs, told):
    with pytest.raises(ValidationError, match=told):
        config("ssm", "linear_attention", **{"n_heads": H} | knobs)


def verdicts(config, site, scheme, **knobs):
    chosen = config("ssm", "linear_attention", **{"n_heads": H} | knobs)
    facts = site(position=config("position", scheme))
    return {(found.path, found.status.name) for found in chosen.component.check(chosen, facts)}


def test_what_the_checklist_says(config, site):
    assert verdicts(config, site, "none") == {("n_heads", "PASS")}
    assert ("n_heads", "FAIL") in verdicts(config, site, "none", n_heads=5)
    assert ("d_head", "FAIL") in verdicts(config, site, "rope", d_head=7)
    assert ("position", "WARN") in verdicts(config, site, "alibi")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sizes(made, scheme):
    for kind, columns in (("linear", E + 1), ("retention", E)):
        mixer, _, _ = made(kind, scheme)
        state = mixer.new_state(3, 999, device=torch.device("cpu"), dtype=torch.bfloat16)
        assert state.bytes() == 3 * H * E * columns * 4  # in float32, whatever the model's dtype
        extra = D * D + E if kind == "retention" else 0  # a gate and a norm
        assert sum(parameter.numel() for parameter in mixer.parameters()) == 4 * D * D + extra
