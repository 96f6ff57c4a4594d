"""A draft model proposes: greedy answers are those without it, sampled ones follow the same distribution."""

import pytest
import torch

from builder.generation import generate
from builder.generation.request import GenerationError
from builder.model.row_state import RowState
from tests.choices import mixer_slots

MIXERS = mixer_slots()


@pytest.fixture
def pair(tiny):
    """pair(mixer, noise): a model with that mixer, and one like it but for noise, which agrees now and then."""

    def make(mixer="attention/gqa", noise=0.06, dtype=torch.float64, **facts):
        facts = {"pattern": ("mixer+ffn", "attention"), "mixer": MIXERS[mixer], **facts}
        model, draft = tiny(dtype, **facts), tiny(dtype, **facts)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in draft.parameters():
                parameter += noise * torch.randn(parameter.shape, generator=generator, dtype=dtype)
        return model, draft

    return make


def same(found, right):
    assert torch.equal(found.tokens, right.tokens) and torch.equal(found.lengths, right.lengths)
    assert (found.logprobs - right.logprobs).abs().max() < 1e-5


REAL = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()


@pytest.mark.parametrize("mixer", MIXERS)
def test_greedy_answers_are_those_without_a_draft(pair, ids, mixer):
    model, draft = pair(mixer)
    asked = {"max_new_tokens": 21, "attention_mask": REAL}
    right = generate(model, ids(3, 5), **asked)
    ends, accepted = [int(right.tokens[0, 6]), int(right.tokens[1, 11])], []
    for knobs in ({}, {"eos": ends, "pad": 3}, {"repetition_penalty": 2.0}):
        plain = generate(model, ids(3, 5), **asked, **knobs)
        for count in (1, 4):
            columns = []
            found = generate(
                model, ids(3, 5), **asked, **knobs, draft=draft, draft_tokens=count,
                on_token=lambda step, new, to=columns: to.append((step, new)),
            )  # fmt: skip
            same(found, plain)
            assert [step for step, _ in columns] == list(range(found.tokens.shape[1]))
            assert torch.equal(torch.stack([new for _, new in columns], 1), found.tokens)
            accepted.append(found.accepted)
    assert 0 <= min(accepted) < 1, "what the draft proposes is refused now and then"


def test_a_state_that_is_not_taken_back_is_seen(pair, ids, monkeypatch):
    model, draft = pair("ssm/mamba")
    right = generate(model, ids(3, 5), max_new_tokens=21)
    monkeypatch.setattr(RowState, "rewind", lambda state, mark, kept: None)
    found = generate(model, ids(3, 5), max_new_tokens=21, draft=draft)
    assert (found.logprobs - right.logprobs).abs().max() > 1e-3


def proposals(draft, written, count):
    """(how many were used, how many were made), by passes of the draft over whole sequences, one row."""
    place, used, made = 1, 0, 0
    while place < written.shape[1] - 5:
        read, asked = written[:, : 5 + place], min(count, written.shape[1] - 5 - place - 1)
        for _ in range(asked):
            read = torch.cat((read, draft(read).logits[:, -1:].argmax(-1)), 1)
        agreed = int((read == written[:, : read.shape[1]])[0, 5 + place :].long().cumprod(0).sum())
        place, used, made = place + agreed + 1, used + agreed, made + asked
    return used, made


@pytest.mark.parametrize("mixer", ["attention/gqa", "ssm/mamba", "attention/gqa of a window"])
@pytest.mark.parametrize("count", [1, 4])
@torch.no_grad()
def test_the_draft_proposes_what_it_would_say_behind_what_is_written(pair, ids, mixer, count):
    model, draft = pair(mixer)
    shares = []
    for seed in range(4):
        prompt = ids(1, 5, seed=seed)
        found = generate(model, prompt, max_new_tokens=21, draft=draft, draft_tokens=count)
        used, made = proposals(draft, torch.cat((prompt, found.tokens), 1), count)
        assert found.accepted == used / made
        shares.append(found.accepted)
    assert 0 < sum(shares) < 4
    assert generate(model, prompt, max_new_tokens=21, draft=model).accepted == 1.0
    assert generate(model, prompt, max_new_tokens=1, draft=draft).accepted is None
    assert generate(model, prompt, max_new_tokens=4).accepted is None


@pytest.mark.parametrize("knobs", [{}, {"temperature": 0.7, "top_k": 3, "repetition_penalty": 1.3}])
def test_sampled_answers_follow_the_models_own_distribution(pair, knobs):
    """Three tokens behind one prompt, in 10000 rows: each triple as often as the model, or the sampler, has it."""
    model, draft = pair(vocab_size=4, noise=0.4, dtype=torch.float32)
    rows, knobs = 10000, {"temperature": 1.0} | knobs
    prompt = torch.tensor([[1, 2, 0]]).repeat(rows, 1)
    usual = {"max_new_tokens": 3, "seed": 0, **knobs}
    places = 4 ** torch.arange(3)

    def often(**more):
        found = generate(model, prompt, **usual, **more)
        return torch.bincount((found.tokens * places).sum(1), minlength=64) / rows, found

    with_draft, _ = often(draft=draft, draft_tokens=2)
    right, _ = often()
    band = 5 * (2 * right.clamp_min(1e-4) / rows).sqrt()
    assert ((with_draft - right).abs() < band).all()
    drafted = torch.bincount((generate(draft, prompt, **usual).tokens * places).sum(1), minlength=64) / rows
    assert ((drafted - right).abs() > 2 * band).any(), "a draft that was simply believed would be seen"


def test_a_draft_that_does_not_fit_is_refused(pair, tiny, ids):
    model, draft = pair()
    with pytest.raises(GenerationError, match=r"(?s)draft.*41 tokens in 41 rows.*37 tokens in 37 rows"):
        generate(model, ids(1, 4), max_new_tokens=2, draft=tiny(vocab_size=41))
    with pytest.raises(GenerationError, match="deploy_length = 16"):
        generate(model, ids(1, 4), max_new_tokens=20, draft=tiny(deploy_length=16, train_length=16))
    with pytest.raises(GenerationError, match="draft_tokens"):
        generate(model, ids(1, 4), max_new_tokens=2, draft=draft, draft_tokens=0)
    with pytest.raises(GenerationError, match=r"^draft: found a LanguageModel\n.*beam search draws nothing"):
        generate(model, ids(1, 4), max_new_tokens=2, draft=draft, num_beams=2)
    with pytest.raises(GenerationError, match="beside a state"):
        generate(model, ids(1, 4), max_new_tokens=2, draft=draft, state=model.new_state(1, 9))
