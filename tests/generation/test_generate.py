"""The loop of generation on a small model with a real state: C24, C25, C26, log-probabilities, callback."""

import pytest
import torch
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from builder.errors import ArchlabError
from builder.generation import GenerateResult, generate


def prompt(batch=2, length=5, seed=0, n_tokens=23):
    return torch.randint(n_tokens, (batch, length), generator=torch.Generator().manual_seed(seed))


def uncached(model, tokens, n, choose=lambda logits, _: logits.argmax(-1)):
    """The oracle: the whole sequence through the model for every token, no state."""
    training, model.training = model.training, False
    for _ in range(n):
        with torch.no_grad():
            logits = model(tokens).logits[:, -1].float()
        tokens = torch.cat([tokens, choose(logits, tokens)[:, None]], 1)
    model.training = training
    return tokens[:, -n:]


def test_greedy_equals_the_loop_without_a_state(recurrent):
    model = recurrent()
    result = generate(model, prompt(), max_new_tokens=12)
    assert isinstance(result, GenerateResult)
    assert torch.equal(result.tokens, uncached(model, prompt(), 12))
    assert len(set(result.tokens[0].tolist())) > 3, "the fake model must not be constant"


def test_prefill_runs_once_and_then_one_token_a_step(recurrent):
    model = recurrent()
    generate(model, prompt(length=5), max_new_tokens=4)
    assert model.calls == [(5, False, True, False)] + [(1, False, True, False)] * 3
    assert model.state.max_length == 9


def test_temperature_and_seed_reach_the_sampler(recurrent):
    model = recurrent()
    runs = [
        generate(model, prompt(), max_new_tokens=12, temperature=2.0, seed=s).tokens.tolist()
        for s in (1, 1, 2, None, None)
    ]
    assert runs[0] == runs[1] and runs[0] != runs[2] and runs[3] != runs[4]


@pytest.mark.parametrize("knobs", [{"top_k": 1}, {"top_p": 1e-8}, {"min_p": 1.0}])
def test_each_filter_reaches_the_sampler(recurrent, knobs):
    model = recurrent()
    result = generate(model, prompt(), max_new_tokens=12, temperature=2.0, seed=1, **knobs)
    assert torch.equal(result.tokens, generate(model, prompt(), max_new_tokens=12).tokens)


def test_integer_prompts_of_any_width_are_taken(recurrent):
    model = recurrent()
    for dtype in (torch.int32, torch.int16, torch.uint16):
        result = generate(model, prompt().to(dtype), max_new_tokens=3)
        assert torch.equal(result.tokens, uncached(model, prompt(), 3))


# C24


@pytest.fixture
def ends(recurrent):
    """A model, two prompts, the free run, and an EOS that row 0 emits third and row 1 later or never."""
    for seed in range(200):
        model, tokens = recurrent(seed=seed), prompt(seed=seed)
        free = generate(model, tokens, max_new_tokens=12).tokens
        eos = int(free[0, 2])
        if eos not in free[0, :2] and eos in free[1, 5:11] and eos not in free[1, :5]:
            return model, tokens, free, eos
    raise AssertionError("no seed fits")


PAD = 22


def expected_row(free, eos, width):
    row = free.tolist()
    stop = row.index(eos) + 1 if eos in row else len(row)
    return row[:stop] + [PAD] * (width - stop), stop


def test_c24_eos_is_tracked_for_each_row(ends):
    model, tokens, free, eos = ends
    result = generate(model, tokens, max_new_tokens=12, eos=eos, pad=PAD)
    later = free[1].tolist().index(eos) + 1
    assert result.tokens.shape == (2, later)  # ends once both are done, before 12
    assert later < 12
    for row in (0, 1):
        ids, length = expected_row(free[row], eos, later)
        assert (result.tokens[row].tolist(), int(result.lengths[row])) == (ids, length)
        alone = generate(model, tokens[row : row + 1], max_new_tokens=12, eos=eos, pad=PAD)
        assert alone.tokens[0].tolist() == ids[:length] and alone.lengths.tolist() == [length]
        assert (result.logprobs[row, length:] == 0).all() and (result.logprobs[row, :length] < 0).all()
        torch.testing.assert_close(result.logprobs[row, :length], alone.logprobs[0])
    assert len([c for c in model.calls[-later:] if c[0] == 1]) == later - 1


def test_c24_pad_may_be_the_eos(ends):
    model, tokens, free, eos = ends
    result = generate(model, tokens, max_new_tokens=12, eos=eos, pad=eos)
    assert result.tokens[0].tolist() == free[0, :3].tolist() + [eos] * (result.tokens.shape[1] - 3)
    assert result.lengths.tolist() == [3, free[1].tolist().index(eos) + 1]


def test_c24_eos_in_the_prompt_stops_nothing(ends):
    model, tokens, _, eos = ends
    tokens = torch.cat([tokens[:, :-1], torch.full((2, 1), eos)], 1)
    free = generate(model, tokens, max_new_tokens=12).tokens
    result = generate(model, tokens, max_new_tokens=12, eos=eos, pad=PAD)
    for row in (0, 1):
        assert int(result.lengths[row]) == expected_row(free[row], eos, 12)[1]


@pytest.mark.parametrize("kind", [list, tuple, set, iter, torch.tensor])
def test_c24_any_of_several_eos_ends_a_row(ends, kind):
    model, tokens, free, eos = ends
    second = int(free[1, 1])
    result = generate(model, tokens, max_new_tokens=12, eos=kind([second, eos]), pad=PAD)
    for row in (0, 1):
        stops = [i for i, t in enumerate(free[row].tolist()) if t in (second, eos)]
        assert int(result.lengths[row]) == stops[0] + 1


@pytest.mark.parametrize("eos", [None, ()])
@pytest.mark.parametrize("n", [1, 12])
def test_c24_an_unset_eos_never_stops_and_new_tokens_are_counted_exactly(recurrent, eos, n):
    model = recurrent()
    result = generate(model, torch.zeros(3, 4, dtype=torch.int64), max_new_tokens=n, eos=eos)
    assert result.tokens.shape == (3, n) and result.lengths.tolist() == [n] * 3


def test_an_eos_never_emitted_runs_to_the_end(ends):
    model, tokens, free, _ = ends
    never = next(i for i in range(23) if i not in free)
    result = generate(model, tokens, max_new_tokens=12, eos=torch.tensor(never), pad=torch.tensor(PAD))
    assert torch.equal(result.tokens, free) and result.lengths.tolist() == [12, 12]


# C25


def test_c25_the_exact_length_is_served(recurrent):
    model = recurrent(deploy_length=16)
    result = generate(model, prompt(length=10), max_new_tokens=6)
    assert torch.equal(result.tokens, uncached(model, prompt(length=10), 6))
    assert generate(model, prompt(length=15), max_new_tokens=1).tokens.shape == (2, 1)


@pytest.mark.parametrize(("length", "new"), [(10, 7), (16, 1), (17, 1), (17, 6)])
def test_c25_one_token_more_is_refused_before_any_compute(recurrent, length, new):
    model = recurrent(deploy_length=16)
    with pytest.raises(ValueError) as caught:
        generate(model, prompt(length=length), max_new_tokens=new)
    text = str(caught.value)
    assert isinstance(caught.value, ArchlabError)
    for part in (f"prompt {length}", f"max_new_tokens {new}", "model.deploy_length = 16", "fix:", f"={length + new}"):
        assert part in text
    assert ("max_new_tokens=6 or less" in text) is (length == 10)
    assert model.calls == [] and not hasattr(model, "state")


def test_c25_columns_of_padding_alone_do_not_count(recurrent):
    model = recurrent(deploy_length=16)
    tokens = torch.cat([torch.full((2, 9), 7), prompt(length=10)], 1)
    mask = torch.arange(19).expand(2, -1) >= 9
    result = generate(model, tokens, attention_mask=mask, max_new_tokens=6)
    assert torch.equal(result.tokens, generate(model, prompt(length=10), max_new_tokens=6).tokens)


# C26


def test_c26_a_call_leaves_nothing_for_the_next(recurrent):
    model, a, b = recurrent(), prompt(2, 5, 1), prompt(3, 9, 2)
    before = model(a).logits
    runs = [generate(model, t, max_new_tokens=8, temperature=1.0, seed=3).tokens for t in (a, b, a)]
    assert torch.equal(runs[0], runs[2]) and runs[1].shape == (3, 8)
    assert torch.equal(model(a).logits, before)


def test_c26_dropout_is_off_while_generating(recurrent):
    model = recurrent(dropout=0.5).train()
    assert not torch.equal(model(prompt()).logits, model(prompt()).logits), "control: dropout acts when training"
    first, second = (generate(model, prompt(), max_new_tokens=10) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.logprobs, second.logprobs)


@pytest.mark.parametrize("training", [True, False])
def test_c26_the_training_flag_of_each_submodule_is_restored(recurrent, training):
    model = recurrent().train(training)
    model.embed.train(not training)  # one set by itself, as a frozen part is
    flags = [m.training for m in model.modules()]
    generate(model, prompt(), max_new_tokens=2)
    assert [m.training for m in model.modules()] == flags and len(set(flags)) == 2


def test_c26_flags_are_restored_when_the_callback_fails(recurrent):
    model = recurrent().train()

    def stop(step, ids):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(model, prompt(), max_new_tokens=2, on_token=stop)
    assert model.training and model.dropout.training and torch.is_grad_enabled()


def test_c26_no_graph_is_kept_and_training_goes_on(recurrent):
    model = recurrent(dropout=0.1).train()
    result = generate(model, prompt(), max_new_tokens=4)
    assert all(p.grad is None for p in model.parameters())
    assert result.logprobs.grad_fn is None and not result.logprobs.requires_grad
    assert not any(grad for *_, grad in model.calls)
    model(result.tokens).logits.sum().backward()  # new tokens may be trained on: ordinary tensors
    assert model.head.weight.grad is not None
    result.tokens[:, 0] = 1


@pytest.mark.parametrize("seed", [None, 5])
def test_c26_the_global_rng_is_untouched(recurrent, seed):
    model = recurrent(dropout=0.1).train()
    before = torch.get_rng_state()
    generate(model, prompt(), max_new_tokens=6, temperature=1.0, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)


def test_c26_the_global_rng_does_not_change_the_text(recurrent):
    model, texts = recurrent(), []
    for seed in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            texts.append(generate(model, prompt(), max_new_tokens=6, temperature=1.0, seed=5).tokens)
    assert torch.equal(*texts)


# repetition penalty, padded vocabulary rows, log-probabilities, callback


def test_repetition_penalty_counts_prompt_and_answer_as_transformers_does(recurrent):
    model, tokens = recurrent(), prompt(4, 6)
    oracle = RepetitionPenaltyLogitsProcessor(1.8)
    expected = uncached(model, tokens, 12, lambda logits, ids: oracle(ids, logits).argmax(-1))
    result = generate(model, tokens, max_new_tokens=12, repetition_penalty=1.8)
    assert torch.equal(result.tokens, expected)
    assert not torch.equal(result.tokens, generate(model, tokens, max_new_tokens=12).tokens), "control"


@pytest.mark.parametrize("knobs", [{}, {"temperature": 3.0, "seed": 0}, {"repetition_penalty": 1.5}])
def test_padded_vocabulary_rows_are_never_emitted(recurrent, knobs):
    model = recurrent(n_tokens=23, rows=32, favoured=True)
    assert int(model(prompt()).logits.argmax(-1).min()) >= 23, "control: they would have won"
    result = generate(model, prompt(8), max_new_tokens=20, **knobs)
    assert int(result.tokens.max()) < 23 and len(result.tokens.unique()) > 3


@pytest.mark.parametrize("knobs", [{}, {"temperature": 1.5, "top_k": 5, "seed": 0, "repetition_penalty": 1.3}])
def test_logprobs_are_the_models_own(recurrent, knobs):
    model = recurrent(n_tokens=23, rows=32, favoured=True)
    result = generate(model, prompt(), max_new_tokens=10, **knobs)
    logits = model(torch.cat([prompt(), result.tokens], 1)[:, :-1]).logits[:, 4:, :23]
    expected = logits.log_softmax(-1).gather(-1, result.tokens[..., None])[..., 0]
    torch.testing.assert_close(result.logprobs, expected, atol=1e-5, rtol=1e-5)


def test_on_token_sees_each_new_column_in_order(ends):
    model, tokens, _, eos = ends
    seen = []

    def spoil(step, ids):
        seen.append((step, ids.tolist()))
        ids.fill_(0)  # the callback's own copy: generation does not notice

    result = generate(model, tokens, max_new_tokens=12, eos=eos, pad=PAD, on_token=spoil)
    assert seen == list(enumerate(result.tokens.T.tolist()))
    assert torch.equal(result.tokens, generate(model, tokens, max_new_tokens=12, eos=eos, pad=PAD).tokens)
    assert seen[-1][1][0] == PAD


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_generate(recurrent, dtype):
    result = generate(recurrent().to(dtype), prompt(), max_new_tokens=5, temperature=1.0, seed=0)
    assert result.logprobs.dtype == torch.float32 and result.tokens.shape == (2, 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error_not_a_text(recurrent, value, temperature):
    model = recurrent().train()
    model.head.bias.data[3] = value
    with pytest.raises(ArchlabError, match="logits at new token 0 are not finite"):
        generate(model, prompt(), max_new_tokens=3, temperature=temperature)
    assert model.training
