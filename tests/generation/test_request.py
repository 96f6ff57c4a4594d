"""What a prompt may be: left padding, and every refusal before any compute."""

import pytest
import torch
from torch import nn

from builder.errors import ArchlabError
from builder.generation import generate


def prompt(batch=2, length=5, seed=0, n_tokens=23):
    return torch.randint(n_tokens, (batch, length), generator=torch.Generator().manual_seed(seed))


def padded(prompts, pad=7):
    width = max(map(len, prompts))
    tokens = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[False] * (width - len(p)) + [True] * len(p) for p in prompts])
    return tokens, mask


# padding


@pytest.mark.parametrize("penalty", [None, 1.5])
@pytest.mark.parametrize("mask_type", [torch.bool, torch.int64])
def test_a_left_padded_batch_equals_its_rows_alone(recurrent, penalty, mask_type):
    model, prompts = recurrent(), [[3, 1, 4, 1, 5, 9], [2, 6], [5]]
    tokens, mask = padded(prompts)
    knobs = {"max_new_tokens": 8, "repetition_penalty": penalty}
    result = generate(model, tokens, attention_mask=mask.to(mask_type), **knobs)
    for row, ids in enumerate(prompts):
        alone = generate(model, torch.tensor([ids]), **knobs)
        assert torch.equal(result.tokens[row], alone.tokens[0])
        torch.testing.assert_close(result.logprobs[row], alone.logprobs[0])
    unmasked = generate(model, tokens, **knobs)
    assert not torch.equal(result.tokens[1:], unmasked.tokens[1:]), "control: the mask matters"


def test_padding_is_not_penalised(recurrent):
    model, ids = recurrent(), [2, 6]
    first = int(generate(model, torch.tensor([ids]), max_new_tokens=1).tokens)
    assert first not in ids
    tokens, mask = padded([[3, 1, 4, 1], ids], pad=first)
    result = generate(model, tokens, attention_mask=mask, max_new_tokens=1, repetition_penalty=50.0)
    assert int(result.tokens[1]) == first
    unmasked = generate(model, torch.tensor([[first, *ids]]), max_new_tokens=1, repetition_penalty=50.0)
    assert int(unmasked.tokens) != first, "control: as a real token it is penalised"


def test_a_mask_without_padding_is_no_mask(recurrent):
    model = recurrent()
    generate(model, prompt(), max_new_tokens=2, attention_mask=torch.ones(2, 5, dtype=torch.bool))
    assert [masked for _, masked, *_ in model.calls] == [False, False]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ([1, 1, 1, 0], "row 1 = 1110, padding after a real token"),
        ([0, 1, 0, 1], "row 1 = 0101, padding after a real token"),
        ([1, 0, 1, 1], "row 1 = 1011, padding after a real token"),
        ([0, 1, 1, 0], "row 1 = 0110, padding after a real token"),
        ([0, 0, 0, 0], "row 1 = 0000, no real token"),
    ],
)
def test_other_padding_than_left_is_refused(recurrent, row, what):
    model = recurrent()
    mask = torch.tensor([[0, 1, 1, 1], row]).bool()
    with pytest.raises(ValueError, match=what):
        generate(model, prompt(length=4), max_new_tokens=2, attention_mask=mask)
    assert model.calls == []


# refusals


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tokens": torch.empty(1, 0, dtype=torch.int64)}, "tokens: found an empty prompt"),
        ({"tokens": torch.empty(0, 4, dtype=torch.int64)}, "tokens: found an empty prompt"),
        ({"tokens": torch.tensor([1, 2])}, r"tokens: found a tensor of shape \(2,\)"),
        ({"tokens": torch.ones(1, 4)}, "tokens: found .*float32"),
        ({"tokens": torch.tensor([[1, 23]])}, "tokens: found id 23\n.*0 <= id <= 22"),
        ({"tokens": torch.tensor([[1, -1]])}, "tokens: found id -1"),
        ({"max_new_tokens": 0}, "max_new_tokens: found 0"),
        ({"max_new_tokens": -2}, "max_new_tokens: found -2"),
        ({"max_new_tokens": 2.0}, "max_new_tokens: found 2.0"),
        ({"attention_mask": torch.ones(2, 4, dtype=torch.bool)}, r"attention_mask: found a tensor of shape \(2, 4\)"),
        ({"attention_mask": torch.zeros(2, 5)}, "attention_mask: found .*float32"),
        ({"eos": 23}, "eos: found 23"),
        ({"eos": [1, -1]}, "eos: found -1"),
        ({"eos": "</s>"}, "eos: found '</s>'"),
        ({"pad": -100}, "pad: found -100"),
        ({"pad": None}, "pad: found None"),
        ({"eos": torch.zeros(2, 2)}, r"eos: found a tensor of shape \(2, 2\), torch.float32\n"),
        ({"eos": torch.tensor([3.5])}, "eos: found 3.5"),
        ({"pad": torch.tensor([3])}, r"pad: found a tensor of shape \(1,\)"),
        ({"tokens": [[1, 2]]}, "tokens: found a list\n"),
        ({"tokens": torch.tensor(3)}, r"tokens: found a tensor of shape \(\)"),
        ({"tokens": torch.ones(1, 2, dtype=torch.bool)}, "tokens: found .*torch.bool"),
        ({"tokens": torch.ones(1, 2, dtype=torch.int64, device="meta")}, "which holds no values"),
        ({"attention_mask": [[1, 1]]}, "attention_mask: found a list\n"),
        ({"seed": 1.5}, "seed: found 1.5"),
        ({"seed": 2**80}, f"seed: found {2**80}"),
        ({"seed": "x"}, "seed: found 'x'"),
        ({"on_token": 5}, "on_token: found 5"),
        ({"compile": "yes"}, "compile: found 'yes'"),
        ({"state": 5}, "state: found 5"),
        ({"draft": nn.Linear(2, 2)}, "draft: found a Linear\n"),
        ({"model": nn.Linear(2, 2)}, "model: found a Linear\n"),
        ({"draft_tokens": 3}, "draft_tokens: found 3\n.*nothing reads it"),
        ({"source_mask": torch.ones(2, 5)}, "source_mask: found .*\n.*nothing reads it"),
        ({"top_k": nn.Linear(2, 2)}, "top_k: found a Linear\n"),
        ({"temperature": -1.0}, "temperature: found -1.0"),
        ({"top_p": 0.0}, "top_p: found 0.0"),
    ],
)
def test_what_cannot_be_served_is_refused_before_any_compute(recurrent, change, what):
    model = recurrent()
    with pytest.raises(ValueError, match=what) as caught:
        generate(**{"model": model, "tokens": prompt(), "max_new_tokens": 2} | change)
    assert isinstance(caught.value, ArchlabError) and "fix:" in str(caught.value)
    assert model.calls == []


def test_padded_vocabulary_rows_may_be_read_but_not_awaited(recurrent):
    model = recurrent(n_tokens=23, rows=32)
    assert generate(model, torch.tensor([[31]]), max_new_tokens=1, pad=31).tokens.shape == (1, 1)
    for change in ({"eos": 23}, {"pad": 32}, {"tokens": torch.tensor([[32]])}):
        with pytest.raises(ValueError, match=r"found (id )?(23|32)"):
            generate(model, **{"tokens": prompt(), "max_new_tokens": 1} | change)
