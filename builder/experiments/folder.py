"""A run folder: what is in it, and how each file gets there whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from builder.errors import ArchlabError
from builder.load import load
from builder.spec import RunSpec
from builder.whole import write_whole

from .claim import writer

_HASH = "# hash: "
_BEFORE = ("log.txt", "summary.json", "traceback.txt")
"""What a job of a sweep may have left before it became a run."""


class RunFolder:
    """outputs/<experiment>/<run>/: config.yaml, checklist.json, sheet.md, metrics.jsonl, summary.json, checkpoints/,
    samples/, moe_load.png where there are experts, attention_maps/ and wandb/ when W&B is on; a job of a
    sweep has its log.txt."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @classmethod
    def create(cls, spec: RunSpec) -> RunFolder:
        """A new folder with the frozen config in it; raises ArchlabError when a run of that name is there already."""
        name = spec.output.name or datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        folder = cls(Path(spec.output.root, spec.output.experiment, name))
        try:
            folder.path.mkdir(parents=True, exist_ok=True)  # a sweep makes its jobs' folders beforehand
            there = [file for file in folder.path.iterdir() if file.suffix != ".part"]  # of a start that was killed
            frozen = yaml.safe_dump(spec.to_dict(), sort_keys=False, allow_unicode=True)
            text = f"# The frozen config of this run.\n{_HASH}{spec.hash}\n{frozen}"
            if any(file.name not in _BEFORE for file in there) or not folder._freeze(text):
                who = writer(folder.config)
                go_on = f", or go on with it: resume={folder.path}" if who is None else ""
                raise ArchlabError(
                    f"output.name: found {name!r}, and {folder.path} holds something already"
                    f"{f', and {who} is writing to it' if who else ''}; choose another name{go_on}"
                )
        except OSError as error:
            raise ArchlabError(
                f"output: {folder.path} can't be created ({error.strerror}); choose another output.root"
            ) from None
        return folder

    @classmethod
    def open(cls, path: str | Path, key: str = "run") -> RunFolder:
        """The folder of a run that exists; raises ArchlabError, naming `key`, when there is none."""
        folder = cls(path)
        if not folder.config.is_file():
            what = "has no config.yaml" if folder.path.is_dir() else "doesn't exist"
            near = sorted(str(file.parent) for file in folder.path.glob("**/config.yaml"))[-3:]
            hint = (
                f"; runs below it: {', '.join(near)}" if near else "; give the folder of a run, e.g. outputs/main/<run>"
            )
            raise ArchlabError(f"{key}: found {str(path)!r}, which {what}{hint}")
        return folder

    @property
    def config(self) -> Path:
        """The frozen config."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """What was logged, a line of JSON for each step that was."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint called `best`, `last` or `step-<number>` lies."""
        return self.checkpoints / f"{name}.ckpt"

    def spec(self, execution: Mapping[str, Any] | None = None) -> RunSpec:
        """The frozen config; raises ArchlabError when it was changed after the run was made.

        `execution` has other values, by their paths, of keys in spec.EXECUTION, which make no other run of it.
        """
        try:
            text = self.config.read_text(encoding="utf-8")
            content: Any = OmegaConf.to_container(OmegaConf.create(text))
        except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
            raise ArchlabError(f"{self.config}: it isn't YAML any more ({str(error).splitlines()[0]})") from None
        if not isinstance(content, dict) or "model" not in content:
            raise ArchlabError(f"{self.config}: it holds no config any more; restore it, or start a new run")
        for path, value in (execution or {}).items():
            *parents, key = path.split(".")
            reduce(lambda node, parent: node.setdefault(parent, {}), parents, content)[key] = value
        spec = load(content)
        stated = next((line.removeprefix(_HASH) for line in text.splitlines() if line.startswith(_HASH)), None)
        if stated != spec.hash:
            raise ArchlabError(
                f"{self.config}: it states the hash {stated} and its content has {spec.hash}: it was changed after the "
                "run; restore it, or start a new run with that config"
            )
        return spec

    def _freeze(self, text: str) -> bool:
        """Writes config.yaml unless it is there: of two runs that begin at once, one."""
        draft = self.path / f".config.yaml.{os.getpid()}.part"
        write_whole(draft, text)
        try:
            os.link(draft, self.config)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            os.replace(draft, self.config)
        finally:
            draft.unlink(missing_ok=True)
        return True

    def write(self, name: str, text: str) -> None:
        """Writes a file of the folder whole or not at all."""
        write_whole(self.path / name, text)

    def write_json(self, name: str, content: Any) -> None:
        """Writes a file of the folder as JSON."""
        self.write(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def summarise(self, status: str, **facts: Any) -> None:
        """Updates summary.json: the status of the run, and whatever is known by now."""
        self.write_json("summary.json", self.summary() | {"status": status} | facts)

    def refuse_other_data(self, fingerprint: str) -> None:
        """Raises ArchlabError when the data that the config describes isn't what the run was trained on any more."""
        trained_on = self.summary().get("corpus", fingerprint)
        if fingerprint != trained_on:
            raise ArchlabError(
                f"data: the run was trained on {trained_on[:16]}, and its text, split or tokenizer now make "
                f"{fingerprint[:16]}: the data changed since; restore it, or start a new run"
            )

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; {} when there is none yet. Raises ArchlabError when it is damaged."""
        return self.read_json("summary.json") or {}

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What a file of the folder holds, None where there is none; raises ArchlabError when it is damaged."""
        file = self.path / name
        if not file.exists():
            return None
        try:
            content = json.loads(file.read_bytes())
        except OSError as error:
            raise ArchlabError(f"{file} can't be read: {error.strerror}") from None
        except ValueError as error:  # no JSON, or no text
            raise ArchlabError(f"{file} is no JSON any more: {error}; restore it, or take it away") from None
        if not isinstance(content, dict):
            raise ArchlabError(f"{file} holds no facts any more; restore it, or take it away")
        return content
