"""Which knobs go together: each that nothing reads beside the others is refused, in the call and in the command."""

from types import SimpleNamespace

import pytest

from builder import build, compose, load
from builder.errors import ConfigError
from builder.generation.command import GenerateSpec
from builder.generation.together import unfit
from builder.load import read
from recipes.generate import _refuse_unread

SEARCH = {"temperature": 0.0, "num_beams": 4}
BESIDE = [
    ({"temperature": 0.0, "top_k": 3}, "top_k", {"temperature": 0.8}),
    ({"temperature": 0.0, "top_p": 0.5}, "top_p", {"temperature": 0.8}),
    ({"temperature": 0.0, "min_p": 0.5}, "min_p", {"temperature": 0.8}),
    ({"length_penalty": 2.0}, "length_penalty", SEARCH),
    ({"draft_tokens": 3}, "draft_tokens", {"draft": "outputs/main/small"}),
    ({"draft": "outputs/main/small", "compile": True}, "compile", {"draft": None}),
    (SEARCH | {"draft": "outputs/main/small"}, "draft", {"num_beams": 1}),
    (SEARCH | {"temperature": 0.5}, "temperature", {"num_beams": 1}),
    (SEARCH | {"repetition_penalty": 1.2}, "repetition_penalty", {"num_beams": 1}),
]


@pytest.mark.parametrize(("knobs", "idle", "instead"), BESIDE, ids=str)
def test_what_nothing_reads_is_refused_and_what_reads_it_is_said(knobs, idle, instead):
    with pytest.raises(ConfigError) as refused:
        read(GenerateSpec, {"run": "x", "prompt": ""} | knobs)
    assert [problem.path for problem in refused.value.problems] == [idle] == [each.path for each in unfit(knobs)]
    assert any(f"{name}=" in refused.value.problems[0].fix for name in instead)
    read(GenerateSpec, {"run": "x", "prompt": ""} | knobs | instead)
    assert not unfit(knobs | instead)


def test_what_does_nothing_goes_with_all():
    off = {"top_k": None, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "seed": 3}
    for knobs in ({"temperature": 0.0}, SEARCH, {"draft_tokens": None}):
        read(GenerateSpec, {"run": "x", "prompt": ""} | off | knobs)


@pytest.mark.parametrize(
    ("model", "typed", "idle"),
    [
        (["model=encoder", "objective=masked"], {"temperature": 0.5, "max_new_tokens": 3}, True),
        (["model=encoder", "objective=masked"], {"attention": True}, False),
        (["model.pattern=[ssm+ffn]", "model/ssm@model.ssm=mamba"], {"attention": True}, True),
        ([], {"temperature": 0.5, "attention": True}, False),
    ],
    ids=str,
)
def test_what_a_model_has_no_use_for_is_refused(model, typed, idle):
    made = build(load(compose([*model, "model.d_model=32", "model.n_layers=1"])).model, device="meta")
    spec = read(GenerateSpec, {"run": "x", "prompt": "", "checkpoint": "best"} | typed)
    if not idle:
        return _refuse_unread(SimpleNamespace(model=made), spec)
    with pytest.raises(ConfigError) as refused:
        _refuse_unread(SimpleNamespace(model=made), spec)
    assert {problem.path for problem in refused.value.problems} == set(typed)
