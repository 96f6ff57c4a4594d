"""What a component needs to be tried alone: a site, a context, the Config of any registered name, a mixture."""

import pytest
import torch

from builder import registry
from builder.component import Site
from builder.model.context import Aux, Context
from builder.model.mask import Mask
from builder.model.positions import Positions, count
from tests.choices import slot


@pytest.fixture
def config():
    """config(room, name, **knobs): a frozen Config, judged as a YAML file would be."""

    def make(room, name, **knobs):
        written = slot(room, name) if room in ("position", "attention", "ffn", "init") else {"name": name}
        return registry.find(room, name).Config.model_validate(written | knobs)

    return make


@pytest.fixture
def site(config):
    """site(**facts): a site of a small decoder, whose norm is rmsnorm and which has no positions."""

    def make(**facts):
        usual = dict(d_model=32, layer=0, n_layers=2, writes=4, causal=True, train_length=16, deploy_length=16)
        slots = dict(norm=config("norm", "rmsnorm"), position=config("position", "none"))
        return Site(**usual | slots | facts)

    return make


@pytest.fixture
def context(config, site):
    """context(length, **fields): one pass of `length` tokens, causal and without positions unless told otherwise."""

    def make(length, **fields):
        positions = Positions(count(length, 0, torch.device("cpu")))
        scheme = config("position", "none").component(config("position", "none"), site())
        usual = dict(positions=positions, key_positions=positions, mask=Mask(), position=scheme, aux=Aux())
        return Context(**usual | fields)

    return make


@pytest.fixture
def wide():
    """wide(module): the module in float64, every parameter from N(0, 0.2^2), so that no fault hides behind a zero."""

    def draw(module, seed=0):
        generator = torch.Generator().manual_seed(seed)
        module = module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_(0.0, 0.2, generator=generator)
        return module

    return draw


@pytest.fixture
def moe(config, site, wide):
    """moe(causal=True, **knobs): (its Config, a mixture of four experts of which a token passes two, drawn wide)."""

    def make(causal=True, **knobs):
        usual = dict(n_experts=4, top_k=2, expert={"name": "glu", "d_ff": 6}, router={"name": "topk"}, balance=False)
        chosen = config("ffn", "moe", **usual | knobs)
        return chosen, wide(chosen.component(chosen, site(d_model=8, causal=causal)))

    return make
