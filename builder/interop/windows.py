"""Families in which some layers see a window of the keys and the others all of them, as `layer_types` says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from .facts import Facts
from .family import Family
from .hf_config import HFConfig

LOCAL, GLOBAL = "sliding_attention", "full_attention"
_SLOTS = {LOCAL: "local", GLOBAL: "attention"}


class Windowed(Family):
    """A layer that `layer_types` calls sliding sees `sliding_window` keys: our slot `local`.

    It is `attention` with a window, and with what fields say of `local` alone. Where all layers are local, it is
    `attention` itself.
    """

    @abstractmethod
    def unstated(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        """The kind of each layer that their code takes where the file names none."""

    def window(self, config: HFConfig) -> int | None:
        """How many keys a local layer sees."""
        return config.get("sliding_window", None if config.states("sliding_window") else 4096)

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        window, own = self.window(config), section.pop("local", {})
        kinds = self._kinds(config, section["n_layers"], window)
        if LOCAL in kinds:
            slot = "local" if GLOBAL in kinds else "attention"
            section[slot] = section["attention"] | own | {"window": window}
        if LOCAL in kinds and GLOBAL in kinds:
            section["pattern"] = [f"{_SLOTS[kind]}+ffn" for kind in tile(kinds)]
        return section

    def _kinds(self, config: HFConfig, n_layers: int, window: int | None) -> list[str]:
        stated = config.get("layer_types")
        kinds = self.unstated(config, n_layers, window) if stated is None else stated
        if not (isinstance(kinds, list) and len(kinds) == n_layers and all(kind in _SLOTS for kind in kinds)):
            config.refuse("layer_types", f"{LOCAL} or {GLOBAL} for each of {n_layers} layers", "a model of these two")
        elif LOCAL in kinds and window is None:
            config.refuse("sliding_window", "some layers are local, and nothing says how much they see", "a number")
        else:
            return kinds
        return []

    def write(self, facts: Facts) -> dict[str, Any]:
        windows = facts.each("attention.window")
        kinds = {"layer_types": [LOCAL if window else GLOBAL for window in windows]}
        seen = {"sliding_window": min(filter(None, windows))} if any(windows) else {}
        return super().write(facts) | kinds | seen


def tile(kinds: Sequence[str]) -> Sequence[str]:
    """The shortest beginning of a list that gives it back when it is tiled and cut; the list itself at worst."""
    fits = (n for n in range(1, len(kinds)) if all(kind == kinds[i % n] for i, kind in enumerate(kinds)))
    return kinds[: next(fits, len(kinds))]
