"""A Hugging Face `config.json` that remembers which of its fields were read, so that none is ever passed over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from builder.errors import ArchlabError, ConfigError, Problem, shown

FILE = "config.json"
BESIDE = "beside"
"""Below it stand fields that are in no config.json: what other files of the folder say."""
ANY = object()
"""In a table of neutral values: whatever stands there, it doesn't change what the model computes."""

NEUTRAL: dict[str, Any] = {
    # what the file is of
    **dict.fromkeys(("architectures", "auto_map", "dtype", "model_type", "name_or_path", "torch_dtype"), ANY),
    **dict.fromkeys(("transformers_version", "_name_or_path", "_commit_hash"), ANY),
    # how it is run
    **dict.fromkeys(("use_cache", "output_attentions", "output_hidden_states", "return_dict", "torchscript"), ANY),
    **dict.fromkeys(("_attn_implementation", "_attn_implementation_autoset", "attn_implementation"), ANY),
    **dict.fromkeys(
        ("use_bfloat16", "return_dict_in_generate", "tie_last_hidden_states", "gradient_checkpointing"), ANY
    ),
    # special ids: they belong to the tokenizer
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"), ANY),
    # heads for other tasks
    **dict.fromkeys(("id2label", "label2id", "num_labels", "problem_type", "finetuning_task"), ANY),
    **dict.fromkeys(("task_specific_params", "classifier_dropout", "tokenizer_class", "prefix"), ANY),
    # generation, kept here by old versions
    **dict.fromkeys(("do_sample", "max_length", "min_length", "num_beams", "temperature", "top_k", "top_p"), ANY),
    **dict.fromkeys(("repetition_penalty", "length_penalty", "no_repeat_ngram_size", "max_new_tokens"), ANY),
    # switches that turn a decoder into something else
    **dict.fromkeys(("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"), (False,)),
    "is_decoder": ANY,  # our models are decoders, and theirs by these names too
    "chunk_size_feed_forward": (0,),
}
"""Fields that no family need read: at any value, or at the values given."""


class HFConfig:
    """`get` and `[...]` read a field by its dotted path and remember that; `finish` refuses what nobody read.

    A field that is null or {} is one that isn't set.
    """

    def __init__(self, values: Mapping[str, Any], where: str = FILE):
        self._values, self.where = values, where
        self._read: set[str] = set()
        self._problems: list[Problem] = []

    @classmethod
    def open(cls, folder: Path) -> HFConfig:
        """The config.json of a folder; raises ArchlabError when it is missing or damaged."""
        file = folder / FILE
        if not file.is_file():
            state = "has no config.json" if folder.is_dir() else "doesn't exist"
            raise ArchlabError(f"hf: {folder} {state}; give a folder that save_pretrained wrote")
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ArchlabError(f"hf: {file} is no JSON: {error}") from None
        if not isinstance(values, dict):
            raise ArchlabError(f"hf: {file} holds no fields, but {type(values).__name__}")
        return cls({key: value for key, value in values.items() if key != BESIDE}, str(file))

    def tell(self, beside: Mapping[str, Any]) -> None:
        """Adds what the folder says elsewhere, as fields below `beside`."""
        self._values = {**self._values, BESIDE: dict(beside)} if beside else self._values

    def get(self, path: str, default: Any = None) -> Any:
        """The field at a dotted path, `default` where it is missing or null."""
        self._read.add(path)
        found: Any = self._values
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return default if found is None else found

    def states(self, path: str) -> bool:
        """Whether the field at a dotted path is there, be it null."""
        parent, _, key = path.rpartition(".")
        return key in (self.get_section(parent) if parent else self._values)

    def get_section(self, path: str) -> Mapping[str, Any]:
        """The fields below `path`, none of them read yet; {} where there is no such section."""
        section = HFConfig(self._values).get(path)
        if section is not None and not isinstance(section, Mapping):
            self.refuse(path, "a section of fields, {...}")
        return section if isinstance(section, Mapping) else {}

    def __getitem__(self, path: str) -> Any:
        """The field at a dotted path, which must be there."""
        if (value := self.get(path)) is None:
            self.refuse(path, "this field is required", "a config.json that transformers wrote")
            self.judge()
        return value

    def refuse(self, path: str, rule: str, fix: str = "") -> None:
        """Notes that the field at `path` can't be served; `judge` raises all of them together."""
        value = self.get(path)
        problem = Problem(f"{self.where}: {path}", "nothing" if value is None else shown(value), rule, fix)
        if problem not in self._problems:
            self._problems.append(problem)

    def judge(self) -> None:
        """Raises ConfigError with every problem noted so far."""
        if self._problems:
            raise ConfigError(self._problems)

    def finish(self, neutral: Mapping[str, Any], reader: str) -> None:
        """Raises ConfigError with every problem, fields included that nobody read and that aren't `neutral`."""
        allowed = NEUTRAL | dict(neutral)
        for path, value in self._unread(self._values):
            values = allowed.get(path, ())
            if value not in (None, {}) and values is not ANY and not any(_same(value, other) for other in values):
                only = f"only {' or '.join(map(shown, values))}" if values else "no such field"
                rule = f"{reader} here knows {only}, and passing over a field could change what the model computes"
                self.refuse(path, rule, f"a model without {path}, or read it in builder/interop/families/{reader}.py")
        self.judge()

    def _unread(self, values: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
        for key, value in values.items():
            path = f"{parent}.{key}" if parent else key
            if path in self._read:
                continue
            inside = any(read.startswith(f"{path}.") for read in self._read)
            if inside and isinstance(value, Mapping):
                yield from self._unread(value, path)
            else:
                yield path, value


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
