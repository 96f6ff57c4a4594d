"""A broken config for each rule: where it is told, what was found, and that the fix, done as it stands, mends it."""

import os
import subprocess
import sys
from copy import deepcopy
from functools import cache

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from builder.compose import ROOT, compose, is_group

from .broken import BASE, BROKEN
from .knobs import OWN_SHARDS, TOO_SLOW
from .remedies import Told, judged, remedies
from .sources import Sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"), TOO_SLOW + OWN_SHARDS)


@cache
def _groups(chosen: tuple[str, ...]) -> dict:
    return compose(chosen)


def _typed(overrides: list[str], folder: str) -> list[str]:
    """What is typed: of the base what goes with the model and the data that are chosen."""
    other = any(word.startswith("data=") for word in overrides)
    state = "model=state_space" in overrides
    base = [word for word in BASE if not (other and word.startswith("data"))]
    base = [word for word in base if not (state and word.startswith(("model.attention", "model.ffn")))]
    return [override.replace("DIR", folder) for override in (*base, *overrides)]


def composed(overrides: list[str]) -> dict:
    """What `compose` makes of overrides; the same files are put together once for many."""
    groups = tuple(word for word in overrides if is_group(word.lstrip("+~").partition("=")[0]))
    config = deepcopy(_groups(groups))
    parser = OverridesParser.create()
    for word in overrides:
        if word in groups:
            continue
        override = parser.parse_override(word if word.startswith("~") else f"++{word}")
        *parents, key = override.key_or_group.split(".")
        node = config
        for parent in parents:
            node = node.setdefault(parent, {})
        if override.is_delete():
            del node[key]
            continue
        value = override.value()
        node[key] = node[key] | value if isinstance(value, dict) and isinstance(node.get(key), dict) else value
    return config


def told_of(config: dict, folder) -> list[Told]:
    return list(judged(config, folder, probes=False, trains=False).told)


def test_what_they_are_changed_from_passes(sources):
    assert told_of(composed(_typed([], str(sources.folder))), sources.folder) == []


def test_there_is_one_for_each_rule():
    assert len(BROKEN) >= 60 and {by for _, by, *_ in BROKEN} == {"load", "data", "checklist", "rehearsal"}


@pytest.mark.parametrize(("overrides", "by", "path", "found", "fix"), BROKEN, ids=lambda value: str(value)[:60])
def test_it_is_refused_and_its_fix_mends_it(sources, overrides, by, path, found, fix):
    config = composed(_typed(overrides, str(sources.folder)))
    every = told_of(config, sources.folder)
    said = [told for told in every if told.path == path and found in told.found and fix in told.fix]
    assert said, "\n".join(map(str, every))
    told = said[0]
    assert told.by == by and told.rule
    mended = list(remedies(told, config))
    assert mended, f"nothing can be done by {told.fix!r}"
    for changed in mended[:1]:
        assert told.key not in [each.key for each in told_of(changed, sources.folder)], told.fix


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [row[0] for row in BROKEN], ids=lambda value: str(value)[:60])
def test_they_are_what_hydra_composes(sources, overrides):
    words = _typed(overrides, str(sources.folder))
    assert composed(words) == compose(words)


def test_a_command_says_it_without_a_traceback(sources):
    words = _typed(["model.attention.n_heads=3", "model.attention.n_kv_heads=1"], str(sources.folder))
    command = [sys.executable, "-m", "recipes.check", *words, "probes=false"]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=ROOT, env=wide, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the checklist fails at model.attention.n_heads" in done.stderr
    assert "model.attention.n_heads" in done.stdout and "write model.d_model=36" in done.stdout
