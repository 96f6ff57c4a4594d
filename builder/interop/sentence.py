"""The files beside config.json in which sentence-transformers says how a row of tokens becomes one vector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.errors import ArchlabError

MODULES = "modules.json"
_POOLING, _NORMALISE = "1_Pooling", "2_Normalize"
_KINDS = ("Transformer", "Pooling", "Normalize")
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
"""What each mode is of ours; the file may name others, and those are refused."""
_SPELT = {name: mode for mode, name in _MODES.items()}


def read_modules(folder: Path) -> dict[str, Any]:
    """{"pooling": name, "normalise": bool} of a folder that sentence-transformers saved, {} of another one.

    Raises ArchlabError when its modules do something else.
    """
    if not (folder / MODULES).is_file():
        return {}
    modules = _json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ArchlabError(f"hf: {folder / MODULES} holds no list of modules")
    kinds = tuple(str(module.get("type")).rpartition(".")[2] for module in modules)
    if kinds not in (_KINDS, _KINDS[:2]):
        found = ", ".join(kinds) or "none"
        raise ArchlabError(f"hf: {folder / MODULES}: found the modules {found}, and {', '.join(_KINDS)} are known here")
    path = str(modules[1].get("path"))
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ArchlabError(f"hf: {folder / MODULES}: path: found {path!r}, and only files in the folder are allowed")
    file = folder / path / "config.json"
    stated = _json(file)
    if not isinstance(stated, dict):
        raise ArchlabError(f"hf: {file} holds no fields")
    modes = [key for key, value in stated.items() if key.startswith("pooling_mode") and value]
    if len(modes) != 1 or modes[0] not in _MODES:
        found, known = ", ".join(modes) or "none", ", ".join(_MODES)
        raise ArchlabError(f"hf: {file}: found the modes {found}, and exactly one is known here, of {known}")
    return {"pooling": _MODES[modes[0]], "normalise": len(kinds) == len(_KINDS)}


def write_modules(said: Mapping[str, Any], folder: Path) -> None:
    """Writes what `read_modules` reads; nothing where nothing is said of a pooling."""
    if "pooling" not in said:
        return
    paths = {"Transformer": "", "Pooling": _POOLING} | ({"Normalize": _NORMALISE} if said["normalise"] else {})
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(paths.items())
    ]
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    for path in filter(None, paths.values()):
        (folder / path).mkdir()
    modes = {mode: mode == _SPELT[said["pooling"]] for mode in _MODES}
    sizes = {"word_embedding_dimension": said["width"]}
    (folder / _POOLING / "config.json").write_text(json.dumps(sizes | modes, indent=2) + "\n", encoding="utf-8")


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArchlabError(f"hf: {file} can't be read: {error}") from None
