"""Hydra's part: groups, overrides and interpolations in, one plain dict out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from . import registry
from .errors import ArchlabError

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
GROUPS = (CONF, ROOT / "recipes")
"""Where groups are looked for: conf/, and recipes/ for `arch=`."""

PLUGINS = str(Path(__file__).parent / "plugins")
"""Where the package hydra_plugins of this project lies."""

TEXTS = ("prompt", "sample.prompt", "runs", "where", "diff")
"""Keys whose value is taken as typed: it may hold commas, quotes and brackets, which are Hydra's grammar."""

FAULTS = (HydraException, OmegaConfBaseException, YAMLError)
"""What Hydra raises at overrides and at files that are wrong."""

_YAML = "a YAML file holds keys, each once, indented by spaces"
_SEARCH = "hydra.searchpath="
_RECIPES = "pkg://recipes"
_VALUE = re.compile(r"^(?P<key>[A-Za-z_][\w.@/]*)=")


def compose(overrides: Sequence[str] = (), config_name: str = "train") -> dict[str, Any]:
    """The config that these Hydra overrides describe: resolved, in plain Python.

    Raises ArchlabError with Hydra's reason when an override or a group is wrong.
    """
    texts = [word.partition("=") for word in overrides if word.partition("=")[0] in TEXTS]
    others = [word for word in overrides if word.partition("=")[0] not in TEXTS]
    return with_texts(plain(composed(others, config_name)), {key: text for key, _, text in texts})


def composed(overrides: Sequence[str] = (), config_name: str = "train") -> DictConfig:
    """What Hydra makes of these overrides, its interpolations still open; raises ArchlabError with its reason."""
    prepare()
    if swept := next((word for word in overrides if word.startswith(("sweep=", "sweep."))), None):
        raise ArchlabError(f"{swept}: this describes a sweep, and one is asked for with -m: recipes.train -m {swept}")
    GlobalHydra.instance().clear()
    with told(overrides), initialize_config_dir(str(CONF), version_base="1.3", job_name="archlab"):
        return hydra_compose(config_name, overrides=adapt(overrides))


@contextmanager
def told(overrides: Sequence[str]) -> Iterator[None]:
    """What Hydra raises at these overrides is an ArchlabError with its reason."""
    try:
        yield
    except FAULTS as error:
        raise ArchlabError(reason(error, overrides)) from None
    except ValueError as error:  # Hydra's own, which don't say where
        raise ArchlabError(f"{reason(error)}; found in {' '.join(overrides)}") from None


def with_texts(config: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    """`config` with texts at their paths, as they were typed."""
    for path, text in texts.items():
        *parents, key = path.split(".")
        node = config
        for parent in parents:
            node = node.setdefault(parent, {})
        node[key] = text
    return config


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed config as plain Python, interpolations resolved; raises ArchlabError where one can't be."""
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=False)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise ArchlabError(reason(error)) from None


def reason(error: BaseException, overrides: Sequence[str] = ()) -> str:
    """What Hydra says at these overrides, with the cause that it keeps behind, and what it doesn't know: that a
    component needs no file to be chosen by name."""
    said = _said(error)
    if error.__cause__ is not None and (cause := _said(error.__cause__)) not in said:
        said = f"{said}\n{cause}"
    group, _, name = (getattr(error, "missing_cfg_file", None) or "").rpartition("/")
    room = group.rpartition("/")[2]
    if room in registry.ROOMS and registry.is_name(room, name):
        keys = (key for key, _, chosen in (word.partition("=") for word in overrides) if chosen == name)
        places = (key.partition("@")[2] for key in keys if key.partition("@")[0] == group)
        place = next(filter(None, places), group.replace("/", "."))
        said = f"{said}\na component without a file there is chosen by its name; write {place}.name={name}"
    return said


def _said(error: BaseException) -> str:
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark or error.context_mark) is not None:
        return f"{mark.name}, line {mark.line + 1}: {error.problem or error.context}; {_YAML}"
    if isinstance(error, YAMLError):  # a character that is none, say
        return f"{getattr(error, 'name', 'a YAML file')}: {str(error).partition(chr(10))[0]}; {_YAML}"
    text = str(error).partition("\nConfig search path:")[0].strip().replace("'++", "'")
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}: {text.partition(chr(10))[0]}"
    typed = error.override.removeprefix("++") if isinstance(error, OverrideParseException) else ""
    return text if typed in text else f"{typed}: {text}"


def is_group(key: str) -> bool:
    """Whether what stands before `=` chooses a file of conf/ or recipes/, and sets no value."""
    group = key.partition("@")[0]
    return any((root / group).is_dir() for root in GROUPS)


def options(group: str) -> list[str]:
    """The files that a group may be, by name."""
    return sorted({file.stem for root in GROUPS for file in (root / group).glob("*.yaml")})


def stated(config_name: str) -> list[str]:
    """The keys that a config of conf/ itself states, beside those of the files that it is made of."""
    return [str(key) for key in OmegaConf.load(CONF / f"{config_name}.yaml") if key not in ("defaults", "hydra")]


def adapt(arguments: Iterable[str], search: bool = True) -> list[str]:
    """Overrides as people type them, as Hydra wants them.

    A key may be set whether or not a YAML file states it, since defaults live in the code: `a.b=1` is passed as
    `++a.b=1`, and `load` judges the key. A new slot is added: `model/attention@model.local=gqa` as `+model/...`.
    `arch=` is looked for in recipes/, beside conf/ and what `hydra.searchpath=` names, unless `search` says that they
    are values all.
    """
    arguments = list(arguments)
    own = [word.partition("=")[2].strip().removeprefix("[").removesuffix("]") for word in arguments if searches(word)]
    where = ",".join([*filter(None, own), _RECIPES])
    others = map(_adapted, (word for word in arguments if not searches(word)))
    return [*[f"{_SEARCH}[{where}]"] * search, *others]


def searches(word: str) -> bool:
    """Whether an override names folders where groups are looked for too."""
    return word.lstrip("+").startswith(_SEARCH)


def _adapted(argument: str) -> str:
    match = _VALUE.match(argument)
    if match is None or match["key"].startswith("hydra"):
        return argument
    group, _, package = match["key"].partition("@")
    if group == "sweep":  # conf/sweep describes the sweeper, not a run
        there = sorted(file.stem for file in (CONF / "sweep").glob("*.yaml"))
        if argument.partition("=")[2] not in there:
            raise ArchlabError(f"sweep: found {argument.partition('=')[2]}; one of {', '.join(there)}")
        return f"+sweep@hydra.sweeper={argument.partition('=')[2]}"
    if group.startswith("sweep."):
        return f"++hydra.sweeper.{argument.removeprefix('sweep.')}"
    if is_group(group):
        if argument.partition("=")[2] in ("", "null"):
            fix = f"{group}=none" if "none" in options(group) else f"~{match['key']}"
            rule = f"a group holds one of its files: {', '.join(options(group))}"
            raise ArchlabError(f"{match['key']}: found {argument.partition('=')[2] or 'nothing'}; {rule}; write {fix}")
        chosen = argument.partition("=")[2]
        if group.startswith("model/") and chosen.startswith("["):  # Hydra would lay one over the other
            rule = f"a slot holds one component: choose one of the list, or sweep over them with -m {group}=a,b"
            raise ArchlabError(f"{match['key']}: found {chosen}; {rule}")
        if package == group.replace("/", "."):  # its own place, which the defaults have
            return f"{group}={argument.partition('=')[2]}"
        return f"+{argument}" if package else argument
    return f"++{argument}"


def prepare() -> None:
    """What Hydra must know beforehand: the plugins of this project, and a resolver.

    `${on_gpu:a,b}` is a on a machine with a GPU that torch can use, else b; the frozen config states which.
    """
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)
        paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT), PLUGINS]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # processes that a launcher starts look there too
    if not OmegaConf.has_resolver("on_gpu"):
        OmegaConf.register_new_resolver("on_gpu", _on_gpu)


def _on_gpu(yes: Any, no: Any) -> Any:
    import torch

    return yes if torch.cuda.is_available() else no
