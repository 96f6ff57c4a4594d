"""The safetensors files of a folder, one or many, mapped into memory and read tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from builder.errors import ArchlabError

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class Weights:
    """The tensors in a folder by name; `shapes` are known without reading them.

    Raises ArchlabError when there are none, or a file is missing or damaged.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name in _files(folder):
            file = _opened(folder / name)
            for tensor in file.keys():  # noqa: SIM118, it is no dict
                self._files[tensor] = file
                self.shapes[tensor] = tuple(file.get_slice(tensor).get_shape())

    def __getitem__(self, name: str) -> Tensor:
        return self._files[name].get_tensor(name)


def _files(folder: Path) -> list[str]:
    if (folder / FILE).is_file():
        return [FILE]
    if (folder / INDEX).is_file():
        try:
            named = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ArchlabError(f"hf: {folder / INDEX} is no index of safetensors files") from None
        for name in named:
            if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ArchlabError(
                    f"hf: {folder / INDEX}: weight_map: found {name!r}, and only files in the folder are allowed"
                )
        return sorted(named)
    there = sorted(file.name for file in (*folder.glob("*.bin"), *folder.glob("*.pth")))
    hint = f" ({', '.join(there)} may run code when it is read: save it anew as safetensors)" if there else ""
    raise ArchlabError(f"hf: {folder} has neither {FILE} nor {INDEX}{hint}")


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt").__enter__()  # open as long as the tensors are wanted
    except (OSError, SafetensorError) as error:
        raise ArchlabError(f"hf: {file} can't be read: {error}") from None
