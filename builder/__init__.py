"""Archlab: YAML in, a checked model out, and experiments that can be compared.

Everything public is named here and imported only when it is asked for, so that checking a config stays fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checklist import Report, check
    from .component import Component, Config, Room, Site, refuse
    from .compose import compose
    from .errors import ArchlabError, ConfigError
    from .experiments.attention_capture import Captured, capture_attention
    from .experiments.run import Run, load_run
    from .finding import Finding, Status
    from .generation import GenerateResult, generate
    from .interop import export_hf, import_hf
    from .ledger import Ledger, ledger
    from .load import load
    from .model.assemble import build
    from .model.language_model import LanguageModel
    from .registry import names, register
    from .spec import ModelSpec, RunSpec

_HOMES = {
    "checklist": ("Report", "check"),
    "component": ("Component", "Config", "Room", "Site", "refuse"),
    "compose": ("compose",),
    "errors": ("ArchlabError", "ConfigError"),
    "experiments.attention_capture": ("Captured", "capture_attention"),
    "experiments.run": ("Run", "load_run"),
    "finding": ("Finding", "Status"),
    "generation": ("GenerateResult", "generate"),
    "interop": ("export_hf", "import_hf"),
    "ledger": ("Ledger", "ledger"),
    "load": ("load",),
    "model.assemble": ("build",),
    "model.language_model": ("LanguageModel",),
    "registry": ("names", "register"),
    "spec": ("ModelSpec", "RunSpec"),
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "ArchlabError",
    "Captured",
    "Component",
    "Config",
    "ConfigError",
    "Finding",
    "GenerateResult",
    "LanguageModel",
    "Ledger",
    "ModelSpec",
    "Report",
    "Room",
    "Run",
    "RunSpec",
    "Site",
    "Status",
    "build",
    "capture_attention",
    "check",
    "compose",
    "export_hf",
    "generate",
    "import_hf",
    "ledger",
    "load",
    "load_run",
    "names",
    "refuse",
    "register",
]


class _Public(ModuleType):
    """Keeps a public function where Python would put the file of the same name once that is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Public


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'builder' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value
