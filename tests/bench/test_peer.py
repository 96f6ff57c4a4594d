"""The peer is the same model: its logits, its size, one step of its training; and what isn't the same is refused."""

import time
from pathlib import Path

import pytest
import torch

from builder import ArchlabError
from builder.bench.contender import Ours
from builder.bench.fairness import distance, refuse_dropout, refuse_unequal
from builder.bench.peer import Peer, export
from builder.bench.settings import BenchSpec, workload
from builder.bench.work import Decode, TrainingStep, tokens
from builder.training.objective import Task
from tests.bench.tiny import GPT2, LLAMA, spec_of

CPU = torch.device("cpu")


@pytest.fixture(params=[LLAMA, GPT2], ids=["llama", "gpt2"])
def pair(request: pytest.FixtureRequest, tmp_path: Path):
    """(spec, ours, theirs)."""
    spec = spec_of(*request.param)
    ours = Ours(spec, CPU)
    with torch.no_grad():
        for parameter in ours.module.parameters():  # far from zero, and from one another
            parameter.add_(0.2 * torch.randn_like(parameter))
    export(ours.module, tmp_path / "peer")
    return spec, ours, Peer(tmp_path / "peer", CPU)


def test_it_gives_the_same_logits_in_training_and_in_generation(pair):
    spec, ours, theirs = pair
    batch = tokens(spec, 2, 16, CPU)
    ours.module.train()
    theirs.module.train()
    one, other = (contender.train(Task(batch, batch))[0] for contender in (ours, theirs))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    refuse_unequal(ours, theirs, spec)


def test_it_learns_the_same_and_writes_the_same(pair):
    spec, ours, theirs = pair
    work = workload(spec, BenchSpec(new_tokens=4))
    one, other = (TrainingStep(contender, spec, work) for contender in (ours, theirs))
    groups = [
        [sum(p.numel() for p in group["params"]) for group in step.optimizer.param_groups] for step in (one, other)
    ]
    assert groups[0] == groups[1]  # the same parameters decay
    for _ in range(2):  # the second loss is that of the weights that the first step left
        torch.testing.assert_close(one.step(), other.step(), rtol=1e-4, atol=1e-4)
    prompt, heard = tokens(spec, 2, 8, CPU), []
    written = [contender.generate(prompt, 4, lambda: heard.append(0)) for contender in (ours, theirs)]
    assert len(heard) == 8 and written[0].shape == (2, 4) and torch.equal(*written)


def test_decode_is_what_passes_from_the_first_token_to_the_last(pair):
    """The prompt counts for nothing, however long it is read."""
    spec, *contenders = pair

    def wait(module, given, named):
        ids = given[0] if given else named["input_ids"]
        time.sleep(0.5 if ids.shape[1] > 1 else 0.05)

    for contender in contenders:
        contender.module.eval().register_forward_pre_hook(wait, with_kwargs=True)
        assert 0.05 < Decode(contender, spec, workload(spec, BenchSpec(new_tokens=4)), 2)() < 0.3


def test_other_weights_are_refused(pair):
    spec, ours, theirs = pair
    with torch.no_grad():
        next(theirs.module.parameters()).mul_(1.5)
    assert distance(ours, theirs, spec) > 1e-2
    with pytest.raises(ArchlabError, match="they are not the same model"):
        refuse_unequal(ours, theirs, spec)


def test_unequal_parameter_counts_are_refused(pair):
    spec, ours, theirs = pair
    theirs.module.extra = torch.nn.Linear(3, 1)
    with pytest.raises(ArchlabError, match=f"has {ours.parameters:,} parameters and .* {ours.parameters + 4:,};"):
        refuse_unequal(ours, theirs, spec)


def test_dropout_is_refused_by_its_path():
    refuse_dropout(spec_of(*LLAMA))
    with pytest.raises(ArchlabError, match=r"model\.block\.dropout: found 0\.2(.|\n)*attention\.dropout: found 0\.1"):
        refuse_dropout(spec_of(*LLAMA, "model.attention.dropout=0.1", "model.block.dropout=0.2"))


def test_a_model_without_a_peer_is_refused_by_its_reason(tmp_path: Path):
    odd = Ours(spec_of(*LLAMA, "model/position=sinusoidal"), CPU)
    with pytest.raises(ArchlabError, match=r"peers=true: transformers has no model like this one(.|\n)*position"):
        export(odd.module, tmp_path / "peer")
