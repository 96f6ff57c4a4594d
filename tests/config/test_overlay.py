"""Overrides laid over a whole config: only what was typed changes, in the places that it names."""

import pytest

from builder.compose import compose
from builder.errors import ArchlabError
from builder.load import load
from builder.overlay import lay

PROMPT = "costs ${more}, [much"


@pytest.fixture(scope="module")
def frozen():
    """A frozen config that no default describes, with a text that Hydra would stumble over."""
    config = load(compose(["model.n_layers=2", "model/norm=layernorm", "trainer=cpu", f"sample.prompt={PROMPT}"]))
    return config.to_dict()


def changed(frozen, *words):
    """{path: value} of the leaves that differ from the frozen config, None where one is gone."""

    def leaves(node, path=""):
        if not isinstance(node, dict):
            return {path: node}
        return {key: value for k, each in node.items() for key, value in leaves(each, f"{path}.{k}").items()}

    before, after = leaves(frozen), leaves(lay(words, frozen, "run=DIR"))
    return {path[1:]: after.get(path) for path in before | after if before.get(path) != after.get(path)}


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ([], {}),
        (["model.deploy_length=4096"], {"model.deploy_length": 4096}),
        (["sample.prompt=a, ${b}"], {"sample.prompt": "a, ${b}"}),
        (["~model.block.dropout"], {"model.block.dropout": None}),
        (["model.ffn.d_ff=${model.d_model}"], {"model.ffn.d_ff": 128}),
        (["model/position=alibi"], {f"model.position.{key}": None for key in ("theta", "fraction", "pairing")}
            | {"model.position.name": "alibi"}),
        (["model/attention@model.local=mqa", "model.local.n_heads=2"],
            {"model.local.name": "gqa", "model.local.n_kv_heads": 1, "model.local.n_heads": 2}),
    ],
)  # fmt: skip
def test_what_was_typed_changes_and_nothing_else(frozen, words, change):
    assert changed(frozen, *words) == change
    load(lay(words, frozen, "run=DIR"))


def test_a_group_of_ones_own_is_looked_for_where_one_says(frozen, tmp_path):
    for group, text in {"model/position": "name: none\n", "experiment": "# @package _global_\nseed: 3\n"}.items():
        (tmp_path / group).mkdir(parents=True)
        (tmp_path / group / "own.yaml").write_text(text)
    where = f"hydra.searchpath=[file://{tmp_path}]"
    assert lay([where, "model/position=own"], frozen, "run=DIR")["model"]["position"] == {"name": "none"}
    with pytest.raises(ArchlabError, match="experiment: found own; it says more than one place"):
        lay([where, "experiment=own"], frozen, "run=DIR")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("arch=gpt2", "arch: found gpt2; it says more than one place"),
        ("experiment=norms", "experiment: found norms"),
        ("trainer=gpu", "run=DIR has a whole one"),
        ("model.d_model=1,2", "run=DIR is one config"),
        ("sweep=norms", "-m"),
        ("~model.local", "~model.local: there is no such key"),
        ("model/position=alibii", "alibi"),
        ("a=[", "a=["),
        ("model.d_model=${nope}", "nope"),
    ],
)
def test_what_is_no_change_of_one_config_is_refused(frozen, word, said):
    with pytest.raises(ArchlabError) as refused:
        lay([word], frozen, "run=DIR")
    assert said in str(refused.value)
