"""What is given to generate beside a prompt: a source that fits, refused in full where it doesn't."""

import pytest
import torch

from builder import build, compose, generate, load
from builder.generation.request import GenerationError

SMALL = ["model.d_model=32", "model.n_layers=2", "model.train_length=16", "model.deploy_length=16"]


@pytest.fixture(scope="module")
def models():
    two = ["model=encoder_decoder", "model.encoder.n_layers=2", "objective=span_corruption"]
    kinds = {"two": two, "one": [], "encoder": ["model=encoder", "objective=masked"]}
    return {kind: build(load(compose([*more, *SMALL])).model, seed=0) for kind, more in kinds.items()}


def ids(*shape):
    return torch.randint(0, 250, shape, generator=torch.Generator().manual_seed(0))


SOURCES = [
    (None, "source: found None"),
    (torch.zeros(2, 0, dtype=torch.long), r"shape \(2, 0\)"),
    (torch.zeros(2, 17, dtype=torch.long), "S from 1 to 16"),
    ([[1, 2], [3, 4]], r"torch\.tensor\(source\)"),
    (torch.zeros(1, 4, dtype=torch.long), "a row for each of the 2"),
    (torch.full((2, 4), 999), "id 999"),
    (torch.zeros(2, 4), "torch.float32"),
]


@pytest.mark.parametrize(("source", "said"), SOURCES, ids=str)
def test_a_source_that_does_not_fit_is_refused(models, source, said):
    with pytest.raises(GenerationError, match=said):
        generate(models["two"], ids(2, 1), source=source, max_new_tokens=3)


def test_what_reads_no_source_says_so(models):
    for kind, said in (("one", "reads no source"), ("encoder", "an encoder")):
        with pytest.raises(GenerationError, match=said):
            generate(models[kind], ids(2, 1), source=ids(2, 4), max_new_tokens=3)
    with pytest.raises(GenerationError, match="source: found a list"):
        generate(models["one"], ids(2, 1), source=[[1], [2]], max_new_tokens=3)
    with pytest.raises(GenerationError, match="source_mask: found a list"):
        generate(models["two"], ids(2, 1), source=ids(2, 4), source_mask=[[1]], max_new_tokens=3)
    with pytest.raises(GenerationError, match="a row of padding alone"):
        mask = torch.tensor([[True] * 4, [False] * 4])
        generate(models["two"], ids(2, 1), source=ids(2, 4), source_mask=mask, max_new_tokens=3)
    for model, draft in (("two", "two"), ("one", "two")):
        with pytest.raises(GenerationError, match="a decoder proposes to a decoder"):
            beside = {"source": ids(2, 4)} if model == "two" else {}
            generate(models[model], ids(2, 1), **beside, max_new_tokens=3, draft=models[draft])


@pytest.mark.parametrize("knobs", [{}, {"num_beams": 3}], ids=str)
def test_a_padded_source_is_answered_alike_and_a_state_holds_one(models, knobs):
    model, source = models["two"], ids(2, 5)
    alone = generate(model, ids(2, 1), source=source, max_new_tokens=6, **knobs).tokens
    longer = torch.cat((source, torch.full((2, 4), 7)), dim=1)
    real = torch.arange(9).expand(2, -1) < 5
    padded = generate(model, ids(2, 1), source=longer, source_mask=real, max_new_tokens=6, **knobs).tokens
    assert torch.equal(alone, padded)
    state = model.new_state(2, 12)
    with torch.no_grad():
        model(ids(2, 1), source=source, state=state)
    with pytest.raises(GenerationError, match="a state holds one source"):
        generate(model, ids(2, 1), source=source, state=state, max_new_tokens=2)
    assert generate(model, ids(2, 1), state=state, max_new_tokens=2).tokens.shape == (2, 2)
