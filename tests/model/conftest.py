"""The tiny model that cases speak of: every choice can be overridden, every parameter is drawn wide."""

import pytest
import torch

from builder import registry
from builder.components.kernel import Case
from builder.model.assemble import build
from builder.spec import ModelSpec
from tests.choices import mixers, slot
from tests.plain_flex import plain_flex  # noqa: F401

TINY = {
    "d_model": 32,
    "n_layers": 2,
    "vocab_size": 37,
    "train_length": 64,
    "deploy_length": 64,
    "attention": {"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "d_head": 8},
    "ffn": {"name": "glu", "d_ff": 48},
    "norm": {"name": "rmsnorm"},
    "block": {"name": "pre_norm"},
    "position": {"name": "rope"},
    "init": {"name": "normal"},
}


def redraw(model, seed=0):
    """Every parameter from N(0, 0.2^2), norm scales and biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return model


@pytest.fixture
def spec():
    """spec(key=value, ...): the tiny ModelSpec with slots and facts replaced; a string stands for that YAML's slot."""

    def make(**overrides):
        slots = {key: value for key, value in overrides.items() if isinstance(value, str) and key != "kind"}
        named = overrides | {key: slot(key, value) for key, value in slots.items()}
        return ModelSpec.model_validate(TINY | named)

    return make


@pytest.fixture
def tiny(spec):
    """tiny(dtype=..., seed=..., **overrides): the tiny model in eval mode, parameters drawn wide."""

    def make(dtype=torch.float32, seed=0, **overrides):
        return redraw(build(spec(**overrides)), seed).to(dtype).eval()

    return make


@pytest.fixture
def ids():
    """ids(B, T): token ids of the tiny vocabulary, the same at each call with the same seed."""
    return lambda *shape, seed=0, high=37: torch.randint(
        high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int64
    )


@pytest.fixture(params=registry.names("position"))
def scheme(request):
    """The name of each position scheme there is."""
    return request.param


@pytest.fixture(params=mixers("attention"))
def attention(request):
    """The name of each attention there is."""
    return request.param


@pytest.fixture(params=registry.names("ffn"))
def ffn(request):
    """The name of each feed-forward part there is."""
    return request.param


@pytest.fixture(params=registry.names("kernel"))
def kernel(request):
    """The name of each kernel there is."""
    return request.param


def trains(name):
    return registry.find("kernel", name).refuses(Case("cpu", flag=False, bias=True, grad=True)) is None


@pytest.fixture(params=[name for name in registry.names("kernel") if trains(name)])
def trained(request):
    """The name of each kernel that has gradients on a CPU, with any mask and bias."""
    return request.param


@pytest.fixture
def pinned():
    """pinned(kernel, ...): the tiny attention computed by one kernel, with further knobs."""
    return lambda kernel, **knobs: TINY["attention"] | {"kernel": kernel} | knobs
