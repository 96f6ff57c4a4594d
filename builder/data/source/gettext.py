"""Translations from gettext catalogues: a message as it stands in a program, and what a translator made of it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ...errors import ConfigError, Problem, nearest
from ...registry import register
from ..catalogue import read_catalogue
from ..paths import files_at, refuse_path, some
from ..records import Record
from . import RecordSource

PACKAGE = "package:"
RULE = f"a .po or .mo file, a folder with some below it, a glob, or {PACKAGE} and the name of an installed package"


def _listed(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


Paths = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
    Field(strict=False),
]


@register("data", "gettext")
class Gettext(RecordSource):
    """Pairs of a message and its translation, each pair once, in the order of the files and of what stands in them.

    Left out: what is not translated, fuzzy or obsolete. Of plurals the first form is taken. Format strings, markup and
    accelerators (`&File`) are kept as they are. Where a .mo and its .po stand side by side, the .po is read: some
    compilers write what is not translated as its own translation.
    """

    kinds = ("pairs",)

    class Config(RecordSource.Config):
        """Where the catalogues are, and whose translations are read.

        path       a catalogue, a folder with some below it, a glob, or `package:NAME` for all of a package that is
                   installed; or a list of those
        language   its code, such as `ru`, as the place of a catalogue has it: ru/LC_MESSAGES/x.mo, ru/x.po, ru.po or
                   x.ru.po; where there is none, ru_RU, if that is the only one of its kind; a path that is a single
                   file is read whatever its place says
        """

        path: Annotated[Paths, Field(min_length=1)]
        language: str = Field(default="ru", min_length=1)

    config: Config

    def records(self) -> list[Record]:
        """The pairs. Raises ConfigError when a path holds no catalogue of the language, or a catalogue is damaged."""
        files = [file for path in self.config.path for file in self._catalogues(path)]
        pairs: dict[Record, None] = {}
        faults: list[str] = []
        for file in files:
            try:
                pairs |= dict.fromkeys(read_catalogue(file))
            except OSError as error:
                faults.append(f"{file} (can't be read: {error.strerror or error})")
            except ValueError as error:
                faults.append(f"{file} ({error})")
        if faults:
            fix = "whole catalogues, or a glob that selects them"
            refuse_path(f"{len(faults)} of {len(files)} catalogues that can't be read: {some(faults)}", RULE, fix)
        if not pairs:
            found = f"{self._given}, where nothing is translated ({len(files)} catalogues)"
            refuse_path(found, RULE, "catalogues with translations")
        return list(pairs)

    def _catalogues(self, path: str) -> list[Path]:
        folder = _package(path.removeprefix(PACKAGE)) if path.startswith(PACKAGE) else path
        there = [file for file in files_at(folder, RULE) if file.suffix.lower() in (".po", ".mo")]
        if not there:
            refuse_path(f"{path!r}, where no .po or .mo file is", RULE, "a path with catalogues")
        written = {file.with_suffix("") for file in there if file.suffix.lower() == ".po"}
        read = [file for file in there if file.suffix.lower() == ".po" or file.with_suffix("") not in written]
        if Path(folder).expanduser().is_file():
            return read
        wanted = _plain(self.config.language)
        chosen = [file for file in read if wanted in map(_plain, _languages(file))]
        near = {code for file in read for code in map(_plain, _languages(file)) if code.startswith(f"{wanted}_")}
        if not chosen and len(near) == 1:
            chosen = [file for file in read if near & {*map(_plain, _languages(file))}]
        if not chosen:
            self._refuse_language(path, {_languages(file)[0] for file in read})
        return chosen

    def _refuse_language(self, path: str, there: Iterable[str]) -> None:
        known = sorted(there)
        more = f" and {len(known) - 40} more" if len(known) > 40 else ""
        found = f"{self.config.language!r}, and {path!r} has {', '.join(known[:40])}{more}"
        fix = f"data.language={nearest(self.config.language, known) or known[0]}"
        raise ConfigError([Problem("data.language", found, "a language that has catalogues there", fix)])

    @property
    def _given(self) -> str:
        return ", ".join(map(repr, self.config.path))


def _plain(code: str) -> str:
    return code.lower().replace("-", "_")


def _languages(file: Path) -> list[str]:
    """What the place of a catalogue may say of its language, the likeliest first."""
    folder = file.parent.name
    if folder.upper() == "LC_MESSAGES":
        return [file.parent.parent.name]
    return [file.stem.rpartition(".")[2], folder]


def _package(name: str) -> str:
    """The folder of an installed package, which isn't imported."""
    try:
        spec = find_spec(name) if name.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        fix = f"pip install {name or '<a package>'}, or the path of a folder"
        refuse_path(f"{PACKAGE + name!r}, and no such package is installed", RULE, fix)
    return next(iter(spec.submodule_search_locations))
