"""Generation on the real model: C24, C25, C26, padded prompts, padded vocabulary rows, training afterwards."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from builder.errors import ArchlabError
from builder.generation import generate
from tests.choices import slot


def uncached(model, tokens, count):
    """The oracle: the whole sequence through the model for every token."""
    with torch.no_grad():
        for _ in range(count):
            tokens = torch.cat((tokens, model(tokens).logits[:, -1:].argmax(-1)), dim=1)
    return tokens[:, -count:]


def test_greedy_equals_the_loop_in_every_kernel(tiny, ids, pinned, kernel):
    attention = pinned(kernel, window=3)
    model, tokens = tiny(position="alibi", attention=attention, tie_embeddings=False, n_layers=1), ids(2, 5)
    assert torch.equal(generate(model, tokens, max_new_tokens=5).tokens, uncached(model, tokens, 5))


@pytest.mark.parametrize("window", [None, 3])
def test_greedy_equals_the_loop_without_a_state(tiny, ids, scheme, attention, window):
    attention = slot("attention", attention, window=window)
    model, tokens = tiny(position=scheme, attention=attention, tie_embeddings=False), ids(2, 5)
    expected = uncached(model, tokens, 12)
    assert torch.equal(generate(model, tokens, max_new_tokens=12).tokens, expected)
    assert len(expected.unique()) > 3, "the model must not be constant"


def test_left_padded_prompts_continue_as_each_alone(tiny, ids, scheme):
    model, tokens, real = tiny(position=scheme, tie_embeddings=False), ids(3, 6), torch.ones(3, 6, dtype=torch.bool)
    for row, pads in enumerate((0, 2, 5)):
        real[row, :pads] = False
        tokens[row, :pads] = 7
    together = generate(model, tokens, attention_mask=real, max_new_tokens=8).tokens
    for row, pads in enumerate((0, 2, 5)):
        alone = generate(model, tokens[row : row + 1, pads:], max_new_tokens=8)
        assert torch.equal(together[row : row + 1], alone.tokens)
    assert not torch.equal(together, generate(model, tokens, max_new_tokens=8).tokens), "a dropped mask is seen"


def test_a_row_ends_at_its_own_eos(tiny, ids):
    model = tiny(tie_embeddings=False)
    for seed in range(40):  # row 0 emits something new at its third step, which row 1 doesn't emit that early
        tokens = ids(2, 5, seed=seed)
        free = generate(model, tokens, max_new_tokens=12).tokens
        eos = free[0, 2].item()
        if eos not in free[0, :2] and eos not in free[1, :4]:
            break
    result = generate(model, tokens, max_new_tokens=12, eos=eos, pad=36)
    assert result.lengths[0] == 3 and result.tokens[0, :3].tolist() == free[0, :3].tolist()
    assert (result.tokens[0, 3:] == 36).all()
    alone = generate(model, tokens[1:], max_new_tokens=12, eos=eos, pad=36)
    length = alone.lengths.item()
    assert length > 3 and result.lengths[1] == length
    assert torch.equal(result.tokens[1, :length], alone.tokens[0, :length])
    assert generate(model, tokens, max_new_tokens=12).lengths.tolist() == [12, 12], "an unset EOS never stops"


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_the_limit_holds_to_the_token(tiny, ids, name):
    model = tiny(position=name, train_length=16, deploy_length=16)
    assert generate(model, ids(1, 10), max_new_tokens=6).tokens.shape == (1, 6)
    for prompt, new in ((10, 7), (17, 1)):
        with pytest.raises(ArchlabError, match=f"(?s){prompt + new}.*16"):
            generate(model, ids(1, prompt), max_new_tokens=new)


@pytest.mark.parametrize("name", ["rope", "none", "alibi", "t5"])
def test_relative_schemes_go_past_the_train_length(tiny, ids, name):
    model = tiny(position=name, train_length=16, deploy_length=24)
    assert generate(model, ids(1, 10), max_new_tokens=14).tokens.shape == (1, 14)


def test_a_call_leaves_nothing_behind(tiny, ids):
    model = tiny(attention={"name": "gqa", "n_heads": 4, "n_kv_heads": 2, "dropout": 0.1}, embedding={"dropout": 0.1})
    a, b = ids(2, 5), ids(3, 9, seed=1)
    logits = model(a).logits
    first = generate(model, a, max_new_tokens=6).tokens
    generate(model, b, max_new_tokens=6)
    assert torch.equal(first, generate(model, a, max_new_tokens=6).tokens)
    assert torch.equal(logits, model(a).logits)
    model.train()
    assert torch.equal(first, generate(model, a, max_new_tokens=6).tokens), "dropout is off"
    assert model.training and not torch.equal(model(a).logits, model(a).logits)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_training_goes_on_after_a_generation(tiny, ids, scheme):
    tokens, losses = ids(2, 9), []
    for sampled in (False, True):
        model = tiny(position=scheme).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            if sampled:
                generate(model, tokens, max_new_tokens=4, temperature=1.0)
            optimizer.zero_grad()
            logits = model(tokens).logits[:, :-1]
            cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        losses.append(model(tokens).logits.logsumexp(-1).sum().item())
    assert losses[0] == losses[1]


def favouring(tiny):
    """A model whose last seven vocabulary rows, a padding of the tokenizer's thirty, always win."""
    model = tiny(head={"bias": True})
    with torch.no_grad():
        model.head.bias[30:] = 100.0
    return model


@pytest.mark.parametrize("knobs", [{}, {"temperature": 5.0, "seed": 0}, {"temperature": 1.0, "top_k": 2, "seed": 0}])
def test_rows_that_only_pad_the_vocabulary_are_never_emitted(tiny, ids, knobs):
    model, prompt = favouring(tiny), ids(4, 5, high=30)
    assert (generate(model, prompt, max_new_tokens=20, **knobs).tokens >= 30).all(), "they would win"
    model.n_tokens = 30
    assert (generate(model, prompt, max_new_tokens=20, **knobs).tokens < 30).all()


def test_a_cast_model_generates(tiny, ids):
    assert generate(tiny(torch.bfloat16), ids(2, 5), max_new_tokens=6).tokens.shape == (2, 6)
