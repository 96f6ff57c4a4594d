"""Overrides laid over a whole config that no YAML of conf/ describes: the frozen one of a run, or an imported one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from .compose import GROUPS, TEXTS, adapt, composed, is_group, plain, searches, told, with_texts
from .errors import ArchlabError


def lay(overrides: Sequence[str], config: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """`config`, that of `folder`, with these overrides: `a.b=1` sets a key, `~a.b` takes one away, and a choice such as
    `model/position=alibi` takes the place of what stood there.

    Raises ArchlabError for a choice that says more than its own place (arch, experiment, trainer), and for a sweep.
    """
    choices = [word for word in overrides if is_group(word.lstrip("+~").partition("=")[0])]
    values = [word for word in overrides if word not in choices and word.partition("=")[0] not in TEXTS]
    places = {word: _place(word, folder) for word in choices}
    removed = [word for word in choices if word.startswith("~") or word.endswith("=null")]
    chosen = composed([word for word in overrides if searches(word) or (word in choices and word not in removed)])
    laid, texts = _apart(config, [word for word in overrides if word.partition("=")[0] in TEXTS])
    for word, place in places.items():
        node = None if word in removed else OmegaConf.select(chosen, place)
        if node is None and word not in removed:  # a file of one's own, which says something else
            _refuse_more(word, folder)
        _put(laid, place, node)
    with told(overrides):
        for override in OverridesParser.create().parse_overrides(adapt(values, search=False)):
            if override.is_sweep_override():
                typed = str(override.input_line).lstrip("+")
                raise ArchlabError(f"{typed}: several values, and {folder} is one config: give one of them")
            if override.is_delete():
                _put(laid, override.key_or_group, None)
            else:
                OmegaConf.update(laid, override.key_or_group, override.value(), merge=True, force_add=True)
    return with_texts(plain(laid), texts)


def _apart(config: Mapping[str, Any], typed: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """The config as Hydra's library reads it, and the texts in it, which it would take for interpolations."""
    laid = OmegaConf.create(dict(config))
    texts: dict[str, str] = {key: text for key in TEXTS if (text := _raw(config, key)) is not None}
    for key in texts:
        _put(laid, key, "")
    return laid, texts | {key: text for key, _, text in (word.partition("=") for word in typed)}


def _raw(config: Any, path: str) -> str | None:
    for key in path.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _place(word: str, folder: str) -> str:
    """The path that a choice fills; raises ArchlabError when its file says more than that."""
    key, _, name = word.lstrip("+~").partition("=")
    group, _, package = key.partition("@")
    files = (root / group / f"{name}.yaml" for root in GROUPS)
    if any("@package _global_" in file.read_text(encoding="utf-8") for file in files if file.is_file()):
        _refuse_more(word, folder)
    return package or group.replace("/", ".")


def _refuse_more(word: str, folder: str) -> NoReturn:
    key, _, name = word.lstrip("+~").partition("=")
    rule = f"it says more than one place of a config, and {folder} has a whole one"
    raise ArchlabError(f"{key}: found {name}; {rule}: set keys one by one, or leave the folder out")


def _put(config: DictConfig, place: str, node: Any) -> None:
    """Sets what stands at a path to `node`; None takes the key away. Raises ArchlabError where there is none."""
    parent, _, key = place.rpartition(".")
    if node is not None:
        OmegaConf.update(config, place, node, merge=False, force_add=True)
        return
    holder = OmegaConf.select(config, parent) if parent else config
    if not isinstance(holder, DictConfig) or key not in holder:
        raise ArchlabError(f"~{place}: there is no such key to take away")
    del holder[key]
