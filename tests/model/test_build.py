"""Building: nothing allocated on meta, seeds that reproduce, the global generator left alone."""

import time

import pytest
import torch
from torch import nn

from builder import check, compose, ledger, load
from builder.component import Config
from builder.components.ffn import FFN
from builder.model.assemble import build
from builder.registry import _known, register

LARGE = {
    "d_model": 8192,
    "n_layers": 80,
    "vocab_size": 128256,
    "train_length": 8192,
    "deploy_length": 8192,
    "tie_embeddings": False,
    "attention": {"name": "gqa", "n_heads": 64, "n_kv_heads": 8},
    "ffn": {"name": "glu", "d_ff": 28672},
}


@pytest.fixture
def borrowed():
    """A feed-forward part made of torch's own modules, which draw from the global generator when they are made."""

    @register("ffn", "borrowed")
    class Borrowed(FFN):
        class Config(Config):
            name: str = "borrowed"

        def __init__(self, config, site):
            super().__init__()
            self.map = nn.Linear(site.d_model, site.d_model)

        def forward(self, x, ctx):
            return self.map(x)

    yield
    del _known["ffn", "borrowed"]


def numbers(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_meta_allocates_nothing_however_large(spec):
    start = time.perf_counter()
    model = build(spec(**LARGE), device="meta")
    assert time.perf_counter() - start < 3
    tensors = [*model.parameters(), *model.buffers()]
    assert tensors and all(tensor.is_meta for tensor in tensors)
    assert sum(parameter.numel() for parameter in model.parameters()) > 70e9


def test_a_seed_reproduces_and_leaves_the_global_generator_alone(spec, borrowed):
    for overrides in ({}, {"position": "learned"}, {"ffn": {"name": "borrowed"}}):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = numbers(build(spec(**overrides), seed=1))
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(6)
        assert torch.equal(first, numbers(build(spec(**overrides), seed=1)))
        assert not torch.equal(first, numbers(build(spec(**overrides), seed=2)))


def test_without_a_seed_the_global_generator_is_drawn_from(spec):
    torch.manual_seed(5)
    first, second = numbers(build(spec())), numbers(build(spec()))
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(first, numbers(build(spec())))


def test_a_dtype_is_that_of_every_parameter(spec):
    assert {parameter.dtype for parameter in build(spec(), dtype=torch.bfloat16).parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (build, "run", r"build takes a ModelSpec, found a RunSpec; write build\(spec\.model\)"),
        (ledger, "run", r"ledger takes a ModelSpec, found a RunSpec; write ledger\(spec\.model\)"),
        (check, "model", r"check takes a RunSpec, found a ModelSpec; write check\(load\(config\)\)"),
        (check, "config", r"check takes a RunSpec, found a dict"),
    ],
)
def test_the_spec_of_something_else_is_told(function, given, told):
    config = compose()
    run = load(config)
    with pytest.raises(TypeError, match=told):
        function({"run": run, "model": run.model, "config": config}[given])


def test_no_vocabulary_no_model(spec):
    with pytest.raises(ValueError, match=r"model\.vocab_size"):
        build(spec(vocab_size=None))


@pytest.mark.parametrize(("init", "narrower"), [("normal", 1.0), ("depth_scaled", (2 * 8) ** -0.5)])
def test_a_built_model_is_drawn_by_role(spec, init, narrower):
    model = build(spec(n_layers=8, init={"name": init, "std": 0.5}, position="learned"), seed=0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == 1).all()
        else:
            residual = name.endswith(("mixer.o.weight", "ffn.down.weight"))
            assert abs(parameter.std() / (0.5 * (narrower if residual else 1.0)) - 1) < 0.1, name
            assert abs(parameter.mean()) < 0.05


def test_mixers_alone_write_once_a_layer(spec):
    init = {"name": "depth_scaled", "std": 0.5}
    model = build(spec(n_layers=4, d_model=128, pattern=["attention"], init=init), seed=0)
    assert abs(model.layers[0].mixer.o.weight.std() / (0.5 * 4**-0.5) - 1) < 0.05


def test_a_slot_may_have_positions_of_its_own(spec, ids):
    local = {"name": "gqa", "n_heads": 4, "position": {"name": "none"}}
    model = build(spec(local=local, pattern=["attention+ffn", "local+ffn"]), seed=0)
    assert model.slots == ["model", "local"] and set(model.positions) == {"model", "local"}
    assert model(ids(2, 5)).logits.isfinite().all()
