"""A block that several layers share: its weights once, what each layer adds to it, and what it is a copy of."""

import copy

import pytest
import torch

from builder import ledger
from builder.model.assemble import build
from builder.spec import ModelSpec
from tests.choices import slot

D = 32


def spec(*sets, block="pre_norm"):
    """A layer for each number: with that set of weights."""
    facts = dict(d_model=D, n_layers=len(sets), vocab_size=37, train_length=16, deploy_length=16)
    names = {"norm": "rmsnorm", "block": block, "position": "rope", "init": "normal"}
    slots = {key: {"name": name} for key, name in names.items()}
    slots |= {f"m{number}": slot("ssm", "memory", weights=number) for number in set(sets)}
    return ModelSpec.model_validate(facts | slots | {"pattern": tuple(f"m{number}" for number in sets)})


@pytest.fixture
def model():
    def make(*sets, **more):
        made, generator = build(spec(*sets, **more)).double().eval(), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.normal_(0.0, 0.2, generator=generator)
        return made

    return make


def ids(*shape):
    return torch.randint(37, shape, generator=torch.Generator().manual_seed(0))


def block_numbers():
    """2 D into q, k and v of 2 D each, back to D; two norms; three maps of the ffn."""
    return 3 * (2 * D) ** 2 + 2 * D * D + 2 * D + D + 3 * D * 64


def test_the_weights_of_a_block_are_there_once():
    one, three = (sum(p.numel() for p in build(spec(*sets)).parameters()) for sets in ((0,), (0, 0, 0)))
    apart = sum(p.numel() for p in build(spec(0, 1, 0)).parameters())
    assert apart - three == block_numbers()
    assert ledger(spec(0, 1, 0)).params == apart
    own = (three - one) // 2
    assert one - own == block_numbers() + 37 * D + D  # the table and the final norm
    names = [name for name in build(spec(0, 1, 0)).state_dict() if ".core.down." in name]
    assert names == ["layers.0.mixer.core.down.weight", "layers.1.mixer.core.down.weight"]


@pytest.mark.parametrize("block", ["pre_norm", "post_norm", "sandwich", "sublayer_norm", "parallel"])
def test_a_shared_block_is_two_that_are_equal(model, block):
    shared, apart, tokens = model(0, 0, block=block), model(0, 1, block=block), ids(2, 9)
    state = shared.state_dict()
    twins = {name.replace("layers.0", "layers.1"): value for name, value in state.items() if ".core." in name}
    apart.load_state_dict(state | twins)
    right = apart(tokens).logits
    for made in (shared, copy.deepcopy(shared)):
        assert (made(tokens).logits - right).abs().max() < 1e-12
    right.square().sum().backward()
    shared(tokens).logits.square().sum().backward()
    found, first, second = (
        made.get_submodule(f"layers.{layer}.mixer.core.down").weight.grad
        for made, layer in ((shared, 0), (apart, 0), (apart, 1))
    )
    assert (found - first - second).abs().max() < 1e-10 * found.abs().max() and second.abs().max() > 1e-6
    with torch.no_grad():
        apart.get_submodule("layers.1.mixer.core.down").weight.mul_(1.5)
    assert (apart(tokens).logits - shared(tokens).logits).abs().max() > 1e-3


def test_what_entered_the_first_layer_is_read_in_each(model):
    """Without it the second layer would read its own stream twice."""
    made, tokens = model(0, 0), ids(1, 9)
    right = made(tokens).logits
    made.layers[1].mixer.core.read = lambda x, embedded, ctx, read=made.layers[1].mixer.core.read: read(x, x, ctx)
    assert (made(tokens).logits - right).abs().max() > 1e-3
