"""Beam search: against transformers' own, against every possible answer, and its knobs."""

import itertools
import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from builder import generate, import_hf
from builder.generation.request import GenerationError
from builder.model.assemble import assemble

V = 11


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(ours, theirs) of one random Llama, sharp enough that beams differ."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=V, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    theirs = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.6)
    folder = tmp_path_factory.mktemp("hf")
    theirs.save_pretrained(folder)
    spec, state = import_hf(folder)
    ours = assemble(spec)
    ours.load_state_dict(state)
    return ours.eval(), theirs


def prompts(padded):
    tokens = torch.tensor([[1, 5, 7, 3], [4, 8, 9, 6], [0, 0, 10, 3]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]], dtype=torch.bool)
    return (tokens, mask) if padded else (tokens[:2], None)


@pytest.mark.parametrize("eos", [None, 2, [2, 5]], ids=str)
@pytest.mark.parametrize("early", [False, True, "never"])
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize(("beams", "padded"), [(2, False), (4, True), (7, True)])
def test_equals_transformers(pair, beams, padded, penalty, early, eos):
    ours, theirs = pair
    tokens, mask = prompts(padded)
    made = generate(
        ours, tokens, attention_mask=mask, max_new_tokens=8, num_beams=beams, eos=eos, pad=0,
        length_penalty=penalty, early_stopping=early,
    )  # fmt: skip
    theirs.generation_config.eos_token_id = None
    right = theirs.generate(
        tokens, attention_mask=torch.ones_like(tokens) if mask is None else mask.long(), max_new_tokens=8,
        num_beams=beams, length_penalty=penalty, early_stopping=early, eos_token_id=eos, pad_token_id=0,
    )[:, tokens.shape[1] :]  # fmt: skip
    for row, length in enumerate(made.lengths.tolist()):
        assert torch.equal(made.tokens[row, :length], right[row, :length])
        assert set(right[row, length:].tolist()) <= {0, 2}  # what it fills up with


def test_logprobs_and_lengths_are_those_of_the_answer(pair):
    ours, _ = pair
    tokens, mask = prompts(True)
    made = generate(ours, tokens, attention_mask=mask, max_new_tokens=8, num_beams=4, eos=2, pad=0)
    assert made.lengths.min() < 8 or made.lengths.max() == 8
    for row, (prompt, real) in enumerate(zip(tokens, mask, strict=True)):
        length = int(made.lengths[row])
        answer = made.tokens[row, :length]
        text = torch.cat((prompt[real], answer))[None]
        said = ours(text).logits[0].log_softmax(-1)[-length - 1 : -1].gather(1, answer[:, None])[:, 0]
        torch.testing.assert_close(made.logprobs[row, :length], said, atol=1e-5, rtol=0)
        assert not made.logprobs[row, length:].any() and not made.tokens[row, length:].any()


def test_enough_beams_find_the_likeliest_of_all_answers(pair):
    """V^2 beams forget nothing that three tokens could need; greedy does."""
    ours, _ = pair
    prompt = torch.tensor([[1, 5, 7]])
    answers = torch.tensor(list(itertools.product(range(V), repeat=3)))
    texts = torch.cat((prompt.expand(len(answers), -1), answers), 1)
    with torch.no_grad():
        logprobs = ours(texts[:, :-1]).logits.log_softmax(-1)[:, -3:].gather(2, answers[..., None])[..., 0].sum(1)
    best = answers[logprobs.argmax()]
    found = generate(ours, prompt, max_new_tokens=3, num_beams=V**2)
    greedy = generate(ours, prompt, max_new_tokens=3)
    assert torch.equal(found.tokens[0], best)
    assert found.logprobs.sum() == pytest.approx(float(logprobs.max()), abs=1e-5)
    assert greedy.logprobs.sum() <= found.logprobs.sum() + 1e-6


@pytest.mark.parametrize("eos", [(), (2, 5)], ids=str)
@pytest.mark.parametrize("penalty", [-1e308, -1000, -5.0, 1000, 1e308])
def test_the_best_of_all_answers_is_found_whatever_the_penalty(pair, penalty, eos):
    """Far from 0 the length alone ranks two answers, and their sums those of one length."""
    ours, _ = pair
    prompt = torch.tensor([[1, 5, 7]])
    whole = torch.tensor(list(itertools.product(range(V), repeat=3)))
    with torch.no_grad():
        logits = ours(torch.cat((prompt.expand(len(whole), -1), whole), 1)[:, :-1]).logits[:, -3:]
    logprobs = logits.log_softmax(-1).gather(2, whole[..., None])[..., 0].tolist()
    sums = {}
    for ids, said in zip(whole.tolist(), logprobs, strict=True):
        length = next((place + 1 for place, id in enumerate(ids) if id in eos), 3)
        sums[tuple(ids[:length])] = sum(said[:length])

    def rank(ids):
        steep = (math.copysign(len(ids), penalty), sums[ids])
        return steep if abs(penalty) > 100 else (sums[ids] / len(ids) ** penalty,)

    made = generate(ours, prompt, max_new_tokens=3, num_beams=V**2, length_penalty=penalty, eos=eos)
    best = max(sums, key=rank)
    assert made.lengths.tolist() == [len(best)] and tuple(made.tokens[0].tolist()) == best


def test_rows_are_searched_as_if_alone(pair):
    ours, _ = pair
    tokens, mask = prompts(True)
    knobs = {"max_new_tokens": 6, "num_beams": 3, "eos": 2}
    together = generate(ours, tokens, attention_mask=mask, **knobs)
    for row in range(len(tokens)):
        alone = generate(ours, tokens[row : row + 1, mask[row]], **knobs)
        length = int(alone.lengths)
        assert int(together.lengths[row]) == length
        assert torch.equal(together.tokens[row, :length], alone.tokens[0, :length])


def test_the_columns_are_shown_when_they_are_known(pair):
    seen = []
    made = generate(pair[0], prompts(False)[0], max_new_tokens=5, num_beams=2, on_token=lambda *new: seen.append(new))
    assert [step for step, _ in seen] == list(range(made.tokens.shape[1]))
    assert torch.equal(torch.stack([ids for _, ids in seen], 1), made.tokens)


@pytest.mark.parametrize(
    ("knobs", "name"),
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": True}, "num_beams"),
        ({"num_beams": 2, "length_penalty": float("inf")}, "length_penalty"),
        ({"num_beams": 1025}, "num_beams"),
        ({"num_beams": 2, "length_penalty": 10**400}, "length_penalty"),
        ({"num_beams": 2, "early_stopping": "yes"}, "early_stopping"),
        ({"num_beams": 2, "early_stopping": 1}, "early_stopping"),
        ({"early_stopping": True}, "early_stopping"),
        ({"num_beams": 2, "temperature": 0.5}, "temperature"),
        ({"num_beams": 2, "top_k": 3}, "top_k"),
        ({"num_beams": 2, "repetition_penalty": 1.2}, "repetition_penalty"),
    ],
)
def test_what_makes_no_search_is_refused(pair, knobs, name):
    with pytest.raises(GenerationError) as refused:
        generate(pair[0], prompts(False)[0], max_new_tokens=2, **knobs)
    assert [problem.path for problem in refused.value.problems] == [name]
