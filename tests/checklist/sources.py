"""Small files for every source and tokenizer that reads one, and what each source can give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from builder import registry
from builder.data import cache_folder
from builder.data.source import TaskSource

LINES = [
    f"the {animal} sat on the {place}" for animal in ("cat", "dog", "owl", "hen") for place in ("mat", "log", "bed")
]
FORMS: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": f"{line}. {line}. {line}."} for line in LINES],
    "pairs": [{"source": line[:9], "target": line[-7:]} for line in LINES],
    "labelled": [{"text": f"{n} {line[:5]}", "label": "abc"[n % 3]} for n, line in enumerate(LINES)],
    "contrastive": [{"text": f"{n} {line[4:7]}", "other": line[-3:]} for n, line in enumerate(LINES)],
    "tagged": [{"words": ["the", f"cat{n}"], "tags": ["D", "N"]} for n in range(12)],
    "chat": [{"messages": [{"role": "user", "content": str(n)}, {"role": "assistant", "content": "b"}]}
             for n in range(12)],
}  # fmt: skip
_CATALOGUE = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


class Sources:
    """The files below `folder`; `cases` are (source, form, kind) of all that are cheap enough to be read often."""

    def __init__(self, folder: Path, without: tuple[str, ...]):
        self.folder = folder
        for form, rows in FORMS.items():
            (folder / f"{form}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "text.txt").write_text("\n".join(LINES * 4))
        told = "\n\n".join(f'msgid "{n} {line[:5]}"\nmsgstr "{line[-3:]}"' for n, line in enumerate(LINES))
        (folder / "ru.po").write_text(_CATALOGUE + told)
        bpe = registry.find("tokenizer", "bpe")
        bpe.prepare(bpe.Config(name="bpe", vocab_size=270), LINES, cache_folder()).save(folder)
        self.cases = [case for name in registry.names("data") if name not in without for case in self._of(name)]

    def where(self, name: str, form: str | None) -> dict[str, Any]:
        """The keys that say where a source or a tokenizer finds what it reads, and that leave out other places."""
        places = {"text": "text.txt", "gettext": "ru.po", "files": f"{form}.jsonl", "file": "tokenizer.json"}
        nothing = {
            "files": {"hub": None, "template": None, "columns": None, "subset": None, "part": "train"},
            "file": {"rows": None},
        }
        given = {"path": str(self.folder / places[name])} if name in places else {}
        if name == "file":
            given |= {"eos": None, "pad": None, "start": None}
        if name == "mixture":
            given = {"sources": {"a": {"name": "text", "path": str(self.folder / "text.txt")}}, "weights": {}}
        return given | nothing.get(name, {})

    def _of(self, name: str) -> list[tuple[str, str | None, str]]:
        source = registry.find("data", name)
        field = source.Config.model_fields.get("form")
        forms = (None,) if field is None else get_args(field.annotation)
        more = {"n_symbols": 8} if issubclass(source, TaskSource) else {}
        made = ({"name": name, **self.where(name, form), **more, **({"form": form} if form else {})} for form in forms)
        return [(name, config.get("form"), source.Config.model_validate(config).kind) for config in made]
