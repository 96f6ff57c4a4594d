"""Every YAML says what it is, composes, loads and passes the checklist, alone and with every other part of a layer."""

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

from builder.checklist import check
from builder.compose import CONF, ROOT, compose
from builder.load import load

FILES = sorted([*CONF.rglob("*.yaml"), *(ROOT / "recipes" / "arch").glob("*.yaml")])
ROOTS = [file.stem for file in CONF.glob("*.yaml")]
PARTS = ("position", "norm", "block", "ffn", "attention")
SMALL = ["d_model=32", "n_layers=2", "train_length=16", "deploy_length=16", "attention.n_heads=4"]
# what a choice goes with, where it doesn't go with the default
BESIDE = {
    "model/router": ["model/ffn=moe"],
    "model/ssm": ["model.pattern=[ssm,attention+ffn]"],
    "model/recurrent": ["model.pattern=[recurrent,attention+ffn]"],
    "model/head": ["model.tie_embeddings=false"],
}
CLASSES = ["model=encoder", "objective=classification", "model.head.n_classes=4"]
BESIDE_OPTION = {
    ("model/router", "switch"): ["model.ffn.top_k=1"],
    ("model", "encoder"): ["objective=masked"],
    ("model", "encoder_decoder"): ["objective=span_corruption"],
    ("model/head", "classifier"): CLASSES,
    ("model/head", "token_classifier"): CLASSES,
    ("model/head", "sentence"): ["model=encoder", "objective=contrastive"],
    ("objective", "masked"): ["model=encoder"],
    ("objective", "span_corruption"): ["model=encoder_decoder"],
    ("objective", "seq2seq"): ["model=encoder_decoder"],
    ("objective", "prefix_lm"): ["model.prefix=true"],
    ("objective", "classification"): [*CLASSES, "model/head=classifier", "model.tie_embeddings=false"],
    ("objective", "contrastive"): ["model=encoder", "model/head=sentence", "model.tie_embeddings=false"],
    ("budget", "params"): ["budget.target=1M"],
    ("budget", "active_params"): ["budget.target=1M"],
    ("budget", "flops"): ["budget.target=2M"],
    ("budget", "state_bytes"): ["budget.target=512KiB"],
}
REFUSED = {
    ("model/router", "expert_choice"): "model.ffn.router",  # by a decoder
    ("model/head", "token_classifier"): "model.head",  # by data whose rows have one label each
}
MOST = 64  # combinations that are run: all of them, or so many drawn from them; tests/checklist draws others


def says_what_it_is(text: str) -> bool:
    """Whether the file opens with a comment, beside Hydra's `# @package`, that ends a sentence."""
    opening: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        opening.append(line.lstrip("# "))
    said = [line for line in opening if not line.startswith("@")]
    return bool(said) and any(line.rstrip().endswith((".", ";", ":", ",")) for line in said) and len(said[0]) > 10


def group_of(file: Path) -> tuple[str, str]:
    """(group, option) of a YAML, e.g. ("model/norm", "rmsnorm")."""
    return str(file.parent.relative_to(CONF)), file.stem


SWEEPS = ("sweep", "hydra/sweeper")  # what describes no run: tests/sweeps
CHOSEN = [group_of(file) for file in FILES if CONF in file.parent.parents]  # recipes/arch: tests/recipes/test_arch.py
OPTIONS = [chosen for chosen in CHOSEN if chosen[0] not in SWEEPS]
APART = {("model/attention", "cross")}  # what is no part of a plain decoder's layer
CHOICES = {
    part: [option for group, option in OPTIONS if group == f"model/{part}" and (group, option) not in APART]
    for part in PARTS
}


def combinations() -> list[tuple[str, ...]]:
    every = list(product(*CHOICES.values()))
    return sorted(random.Random(0).sample(every, min(MOST, len(every))))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small run fastest on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def missing(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from missing(value, f"{path}.{key}".strip("."))
    elif node == "???":
        yield path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], dict[str, Any]]:
    """Composes, with something real wherever `???` stands."""
    home = tmp_path_factory.mktemp("given")
    (home / "text.txt").write_text("To be, or not to be. " * 50)
    words = tokenizers.models.WordLevel({"<eos>": 0, "<pad>": 1, "be": 2}, unk_token="<eos>")
    tokenizers.Tokenizer(words).save(str(home / "tokenizer.json"))
    given: dict[str, Any] = {"data.path": home / "text.txt", "tokenizer.path": home / "tokenizer.json"}
    given |= {f"model.position.scaling.{length}_factor": list(range(1, 17)) for length in ("short", "long")}

    def fill(overrides: list[str]) -> dict[str, Any]:
        config = compose(overrides)
        wanted = list(missing(config))
        return compose([*overrides, *(f"{path}={given[path]}" for path in wanted)]) if wanted else config

    return fill


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_yaml_says_what_it_is(file: Path):
    assert says_what_it_is(file.read_text("utf-8"))


@pytest.mark.parametrize(
    "text", ["", "name: x\n", "\n# Late comment.\n", "# @package _global_\nname: x\n", "#\n", "# x"]
)
def test_a_yaml_that_does_not_say_is_seen(text: str):
    assert not says_what_it_is(text)


def test_every_folder_is_seen():
    groups = {group for group, _ in OPTIONS}
    assert {"model", "model/norm", "model/attention", "data", "trainer", "logger", "experiment"} <= groups
    assert {"train", "check", "generate"} <= set(ROOTS)
    assert all(CHOICES.values())


@pytest.mark.parametrize("name", ROOTS)
def test_every_job_composes(name: str):
    assert compose([], name)


@pytest.mark.parametrize(("group", "option"), [chosen for chosen in OPTIONS if chosen not in APART])
def test_every_option_loads_and_fails_no_question(group: str, option: str, filled: Callable[[list[str]], Any]):
    beside = [*BESIDE.get(group, ()), *BESIDE_OPTION.get((group, option), ())]
    spec = load(filled([*beside, f"{group}={option}"]))
    assert load(spec.to_dict()) == spec
    failures = check(spec, probes=False, trains=False).failures
    expected = [REFUSED[group, option]] if (group, option) in REFUSED else []
    assert [finding.path for finding in failures] == expected, "\n".join(
        f"{finding.path}: {finding.found}; {finding.rule}" for finding in failures
    )


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return compose([f"model.{change}" for change in SMALL])


@pytest.fixture(scope="module")
def choices() -> dict[tuple[str, str], dict[str, Any]]:
    """The composed slot of every choice of a part, in the small model."""
    changes = [f"model.{change}" for change in SMALL]
    pairs = [(part, option) for part, options in CHOICES.items() for option in options]
    return {(part, option): compose([f"model/{part}={option}", *changes])["model"][part] for part, option in pairs}


@pytest.mark.turns(2)
@pytest.mark.parametrize("chosen", combinations(), ids="-".join)
def test_the_parts_of_a_layer_go_together(chosen: tuple[str, ...], small: dict[str, Any], choices: dict[Any, Any]):
    slots = {part: choices[part, option] for part, option in zip(PARTS, chosen, strict=True)}
    spec = load(small | {"model": small["model"] | slots})
    report = check(spec)
    assert report.ok, str(report)
    assert all(finding.found != "not run" for finding in report.findings), "a probe was left out"


def test_parts_that_do_not_go_together_are_seen(small: dict[str, Any], choices: dict[Any, Any]):
    learned = small["model"] | {"position": choices["position", "learned"], "deploy_length": 32}
    report = check(load(small | {"model": learned}))
    assert [finding.path for finding in report.failures] == ["model.position.length"]
