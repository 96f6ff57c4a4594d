"""Faults that random configs have met: what was accepted and broke later, and what was refused for nothing."""

import pytest

from builder.checklist import check
from builder.compose import compose
from builder.data import cache_folder, prepare
from builder.errors import ConfigError
from builder.load import load

from .knobs import OWN_SHARDS, TOO_SLOW
from .sources import Sources

SMALL = ["model.n_layers=2", "model.d_model=32", "model.attention.n_heads=4", "model.ffn.d_ff=48",
         "trainer=cpu", "logger=none"]  # fmt: skip
TWO = ["model=encoder_decoder", "objective=span_corruption", "model.encoder.n_layers=2"]
STATE = ["model=state_space", "model.n_layers=2", "model.d_model=32", "trainer=cpu", "logger=none"]
OF_HEADS = "has a number for each head"
HYBRID = "model/ssm=hybrid_head"

REFUSED = {
    "a bias by head where no mixer has heads": ([*STATE, "model.position={name: alibi}"], "model.position", OF_HEADS),
    "the same in the encoder alone": (
        [*TWO, *SMALL, "model.local={name: lstm}", "model.encoder.pattern=[local+ffn]", "model.position={name: t5}"],
        "model.position", OF_HEADS,
    ),
    "the same in a mixer's own slot": (
        [*STATE, "model/ssm=linear_attention", "model.ssm.n_heads=2", "model.ssm.position={name: t5}"],
        "model.ssm.position", OF_HEADS,
    ),
    "a mixer of two that holds another": (
        [*STATE, HYBRID, "~model.ssm.ssm.d_head", "~model.ssm.ssm.d_state",
         "model.ssm.ssm={name: hybrid_head, attention: {name: gqa, n_heads: 1}, ssm: {name: lstm}}"],
        "model.ssm.ssm.name", "it holds both",
    ),
    "a vector of one number, of length 1": (
        [*SMALL, "model=encoder", "model/head=sentence", "model.head.width=1", "model.tie_embeddings=false"],
        "model.head.width", "nothing to learn",
    ),
    "no devices": ([*SMALL, "trainer.devices=[]"], "trainer.devices", "a list of their numbers"),
    "devices that are a section": ([*SMALL, "trainer.devices={a: 1}"], "trainer.devices", "a list of their numbers"),
    "no machine": ([*SMALL, "trainer.num_nodes=0"], "trainer.num_nodes", "a number of machines"),
    "a type of several, at the key itself": ([*SMALL, "batch.micro_batch=x"], "batch.micro_batch", "integer or 'auto'"),
    "an expert that holds experts": (
        [*SMALL, "model/ffn=moe", "model.ffn={expert: {name: moe, n_expert: 2}}"], "model.ffn.expert.name", "alone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_broke_later_is_refused(case):
    overrides, path, rule = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        load(compose(overrides))
    assert rule in next(problem.rule for problem in caught.value.problems if problem.path == path)


def test_a_fix_names_what_exists():
    with pytest.raises(ConfigError) as caught:
        load(compose(SMALL) | {"objective": "x"})  # no file of conf/objective has that name
    assert caught.value.problems[0].fix == "objective.name=..."


def test_a_scheme_that_nobody_asks_sees_to_no_side():
    """An encoder whose mixers have schemes of their own had no scheme for the model that passed."""
    own = ["model=encoder", "objective=masked", "model.attention.position={name: rope}", "model/position=none"]
    assert check(load(compose([*own, *SMALL])), probes=False, trains=False).ok


def test_both_mixers_of_a_memory_see_alike():
    """A window beside a recurrence was refused of a hybrid head, and not of a memory."""
    memory = ["model=encoder", "objective=masked", "model/ssm@model.state=memory", "model.pattern=[state]",
              "~model.attention", "~model.ffn"]  # fmt: skip
    spec = load(compose([*memory, "model.state.attention={name: gqa, n_heads: 4, window: 4}", "model.d_model=32",
                         "model.n_layers=2", "trainer=cpu", "logger=none"]))  # fmt: skip
    failures = check(spec, probes=False, trains=False).failures
    assert "model.state.attention.window" in [finding.path for finding in failures]


def test_a_table_that_is_too_short_is_told_of_an_encoder_too():
    """The source of no rows that the costs are read off was looked up in it."""
    spec = load(compose([*TWO, *SMALL, "model.position={name: learned, length: 16}"]))
    failures = check(spec, probes=False, trains=False).failures
    assert {finding.path for finding in failures} == {"model.position.length"}


def test_conversations_cut_off_before_their_answers_are_refused(tmp_path):
    folder = Sources(tmp_path, TOO_SLOW + OWN_SHARDS).folder
    data = ["data=files", "data.form=chat", f"data.path={folder}/chat.jsonl", "data.overlong=truncate"]
    with pytest.raises(ConfigError, match="the answer begins behind token 4"):
        prepare(load(compose([*SMALL, *data, "model.train_length=4"])), cache=cache_folder())
