"""A config for each point, as Hydra composes it, and fast: groups are composed once for all points that share them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from builder.compose import adapt, is_group, plain, reason
from builder.errors import ArchlabError
from builder.load import load

from .axes import Point, as_words


class Composer:
    """Configs of points; `compose` raises ArchlabError with Hydra's reason where one can't be made."""

    def __init__(self, loader: ConfigLoader, config_name: str):
        self._loader, self._name = loader, config_name
        self._grouped: dict[tuple[str, ...], DictConfig] = {}
        self._choices: dict[tuple[str, ...], dict[str, Any]] = {}

    def compose(self, point: Point) -> dict[str, Any]:
        """The whole config of a point: resolved, in plain Python."""
        groups, values = _parted(point)
        try:
            config = deepcopy(self._base(groups))
            overrides = OverridesParser.create().parse_overrides(adapt(values, search=False))
            ConfigLoaderImpl._apply_overrides_to_config(overrides, config)
            return plain(config)
        except (HydraException, OmegaConfBaseException) as error:
            raise ArchlabError(reason(error)) from None
        except ValueError as error:  # Hydra's own, which don't say where
            raise ArchlabError(f"{reason(error)}; found in {' '.join(as_words(point))}") from None

    def holds(self, point: Point, key: str, value: Any) -> bool:
        """Whether the config of a point has `value` at `key`, or has chosen it where `key` is a group."""
        groups, _ = _parted(point)
        try:
            node: Any = load(self.compose(point)).to_dict()  # with every default
            if is_group(key):
                return self._choices[groups].get(key) == value
        except ArchlabError:
            return False  # the plan will say why
        for step in key.split("."):
            node = node.get(step) if isinstance(node, dict) else None
        return node == value

    def _base(self, groups: tuple[str, ...]) -> DictConfig:
        if groups not in self._grouped:
            config = self._loader.load_configuration(
                config_name=self._name, overrides=adapt(groups), run_mode=RunMode.RUN
            )
            self._choices[groups] = dict(OmegaConf.to_container(config.hydra.runtime.choices))  # type: ignore[arg-type]
            del config._content["hydra"]  # type: ignore[union-attr]
            self._grouped[groups] = config
        return self._grouped[groups]


def _parted(point: Point) -> tuple[tuple[str, ...], list[str]]:
    """The words that choose groups, and those that set values."""
    words = as_words(point)
    groups = tuple(word for word in words if is_group(word.partition("=")[0].lstrip("+~")))
    return groups, [word for word in words if word not in groups]
