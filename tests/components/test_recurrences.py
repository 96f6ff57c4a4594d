"""Every mixer that carries a state of one size: cut, padded or packed, a sequence stays the same sequence."""

import pytest
import torch

from builder import registry
from builder.checklist.probes.costs import Counter
from builder.components.recurrent import Recurrent
from builder.components.ssm import SSM
from builder.ledger import ledger
from builder.model.assemble import build
from builder.model.mask import Mask
from builder.spec import ModelSpec
from tests.choices import slot

ROOMS = ("ssm", "recurrent")
MIXERS = [(room, name) for room in ROOMS for name in registry.names(room)]
ALONE = [chosen for chosen in MIXERS if issubclass(registry.find(ROOMS, chosen[1]), SSM | Recurrent)]
"""Those that have no attention beside them, which keeps all tokens and reads at padding too."""
LENGTHS = [1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 64, 65]
SPLITS = [(1,) * 13, (2, 11), (3, 1, 9), (5, 4, 4), (12, 1), (1, 12)]
EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.fixture(params=MIXERS, ids="/".join)
def chosen(request):
    return request.param


@pytest.fixture
def spec(chosen):
    """spec(**facts): two layers of the mixer and nothing else."""

    def make(**facts):
        usual = dict(d_model=32, n_layers=2, vocab_size=37, train_length=64, deploy_length=64, pattern=("mixer",))
        names = dict(norm="rmsnorm", block="pre_norm", position="none", init="normal")
        slots = {key: {"name": name} for key, name in names.items()} | {"mixer": slot(*chosen)}
        return ModelSpec.model_validate(usual | slots | facts)

    return make


@pytest.fixture
def model(spec):
    """model(dtype=float64): the model, every parameter from N(0, 0.2^2)."""

    def make(dtype=torch.float64):
        made, generator = build(spec()), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(0.0, 0.2, generator=generator)
        return made.to(dtype).eval()

    return make


@pytest.fixture
def alone(chosen, site, wide):
    """The mixer by itself, in float64 and drawn wide."""
    made = registry.find(*chosen).Config.model_validate(slot(*chosen))
    return wide(made.component(made, site()))


def ids(*shape, seed=0):
    return torch.randint(0, 37, shape, generator=torch.Generator().manual_seed(seed))


def in_parts(model, tokens, split, real=None):
    state, parts, start = model.new_state(len(tokens), tokens.shape[1]), [], 0
    for length in split:
        told = None if real is None else real[:, start : start + length]
        parts.append(model(tokens[:, start : start + length], attention_mask=told, state=state).logits)
        start += length
    return torch.cat(parts, dim=1)


def near(found, right, tolerance=1e-10):
    assert found.isfinite().all()
    assert (found - right).abs().max() <= tolerance * max(1.0, right.abs().max().item())


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@torch.no_grad()
def test_any_split_of_prefill_and_decode_is_the_full_pass(model, dtype):
    made, tokens = model(dtype), ids(2, 13)
    full = made(tokens).logits
    for split in SPLITS:
        near(in_parts(made, tokens, split), full, EXACT[dtype])


@torch.no_grad()
def test_a_full_pass_of_any_length_is_the_recurrence(model):
    made, tokens = model(), ids(2, 65)
    stepwise = in_parts(made, tokens, (1,) * 65)
    for length in LENGTHS:
        near(made(tokens[:, :length]).logits, stepwise[:, :length])


@torch.no_grad()
def test_a_state_that_is_not_handed_on_is_felt(model):
    made, tokens = model(), ids(2, 13)
    assert (made(tokens[:, 6:]).logits - made(tokens).logits[:, 6:]).abs().max() > 1e-3


REAL = torch.tensor(
    [
        [0, 0, 0, 1, 1, 1, 1, 1, 1, 1],  # on the left
        [1, 1, 1, 1, 1, 1, 0, 0, 0, 0],  # on the right
        [1, 1, 0, 0, 1, 1, 1, 0, 1, 1],  # in the middle
        [0, 1, 0, 1, 0, 1, 0, 0, 0, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
).bool()


def each_row_alone(model, tokens, real):
    """The logits of the real tokens of each row, read without any padding; (B, T, V), zeros where padding stands."""
    out = torch.zeros(*tokens.shape, model.vocab_size, dtype=torch.float64)
    for b, kept in enumerate(real):
        if kept.any():
            out[b, kept] = model(tokens[b : b + 1, kept]).logits[0]
    return out


@torch.no_grad()
def test_padding_anywhere_changes_no_real_token(model):
    made, tokens = model(), ids(len(REAL), REAL.shape[1])
    right, seen = each_row_alone(made, tokens, REAL), REAL[..., None]
    near(made(tokens, attention_mask=REAL).logits * seen, right)
    for split in [(10,), (1,) * 10, (4, 6), (2, 3, 5), (7, 1, 2)]:
        near(in_parts(made, tokens, split, REAL) * seen, right)
    changed = torch.where(REAL, tokens, (tokens + 5) % 37)
    assert torch.equal(
        made(changed, attention_mask=REAL).logits * seen, made(tokens, attention_mask=REAL).logits * seen
    )
    assert (made(tokens).logits * seen - right).abs().max() > 1e-3


@torch.no_grad()
def test_decode_goes_on_behind_padding(model):
    made, tokens, more = model(), ids(len(REAL) - 1, 10), ids(len(REAL) - 1, 3, seed=1)
    real = REAL[:-1]
    state = made.new_state(len(tokens), 13)
    made(tokens, attention_mask=real, state=state)
    found = torch.cat([made(more[:, t : t + 1], state=state).logits for t in range(3)], dim=1)
    for b, kept in enumerate(real):
        whole = torch.cat((tokens[b, kept], more[b]))[None]
        near(found[b : b + 1], made(whole).logits[:, -3:])


@pytest.mark.parametrize("chosen", ALONE, ids="/".join, indirect=True)
def test_padding_gives_nothing_and_gets_no_gradient(alone, context):
    x = torch.randn(len(REAL), 10, 32, dtype=torch.float64, requires_grad=True)
    out = alone(x, context(10, mask=Mask(real=REAL)))
    assert not out[~REAL].any()
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert gradient.isfinite().all()
    assert not gradient[~REAL].any()
    assert gradient[REAL].abs().amax(-1).min() > 0


def test_padding_changes_no_gradient(model):
    made, tokens = model(), ids(len(REAL), 10)
    seen, weight = REAL[..., None], torch.linspace(-1, 1, 37, dtype=torch.float64)
    parameters = [*made.parameters()]
    found = torch.autograd.grad((made(tokens, attention_mask=REAL).logits * seen * weight).sum(), parameters)
    right = torch.autograd.grad((each_row_alone(made, tokens, REAL) * weight).sum(), parameters)
    for ours, theirs in zip(found, right, strict=True):
        near(ours, theirs)


SEGMENTS = torch.tensor([[0] * 4 + [1] * 1 + [2] * 9 + [3] * 6, [5] * 10 + [1] * 10])


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_documents_of_a_packed_row_are_apart(model, padded):
    made, tokens = model(), ids(2, 20)
    real = torch.ones(2, 20, dtype=torch.bool)
    if padded:
        real[0, [0, 1, 8]] = False
        real[1, [10, 18, 19]] = False
    packed = made(tokens, segments=SEGMENTS, attention_mask=real if padded else None).logits
    for b in range(2):
        for document in SEGMENTS[b].unique():
            here = (SEGMENTS[b] == document) & real[b]
            near(packed[b, here], made(tokens[b : b + 1, here]).logits[0])
    assert (packed - made(tokens, attention_mask=real if padded else None).logits)[real].abs().max() > 1e-3


@torch.no_grad()
def test_reorder_permutes_rows(model):
    made, tokens, more, index = model(), ids(3, 6), ids(3, 4, seed=1), torch.tensor([2, 0, 2])
    state = made.new_state(3, 10)
    made(tokens, state=state)
    state.reorder(index)
    found = made(more, state=state).logits
    near(found, made(torch.cat((tokens[index], more), dim=1)).logits[:, 6:])
    assert (found - made(torch.cat((tokens, more), dim=1)).logits[:, 6:]).abs().max() > 1e-3


@pytest.mark.parametrize("chosen", ALONE, ids="/".join, indirect=True)
@torch.no_grad()
def test_a_state_is_as_large_for_any_length(model, spec):
    made = model()
    state = made.new_state(2, 64)
    at_first = state.bytes()
    made(ids(2, 40), state=state)
    assert state.bytes() == at_first == made.new_state(2, 7).bytes() > 0
    costs = ledger(spec())
    assert costs.state_bytes_per_token == 0
    assert costs.state_bytes == model(torch.float32).new_state(1, 64).bytes()


@pytest.mark.parametrize("length", [1, 10, 16, 33])
@torch.no_grad()
def test_the_flops_are_those_of_a_run(model, length):
    made = model()
    with Counter() as counter:
        made(ids(1, length))
    assert made.flops(length) == counter.total


@torch.no_grad()
def test_half_precision_is_close(model):
    made, tokens = model(torch.float32), ids(2, 20)
    right = made(tokens).logits
    low = made.to(torch.bfloat16)
    for found in (low(tokens).logits, in_parts(low, tokens, (7, 1, 12))):
        assert found.dtype == torch.bfloat16
        assert (found.float() - right).abs().max() <= 0.05 * right.abs().max()


def test_autocast_trains(spec):
    made = build(spec(), seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        made(ids(2, 20)).logits.float().logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())
