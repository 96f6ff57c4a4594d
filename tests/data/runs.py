"""As much of a run as the data room asks of it, and a corpus of every kind."""

import json
import random
from types import SimpleNamespace
from typing import Any, ClassVar

from builder import registry
from builder.data import prepare
from builder.data.source import RecordSource, TaskSource, TextSource

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "dogs", "run", "by"]
CASES = ["stream", "documents", "padded", "pairs", "labelled", "contrastive", "reverse", "reverse pairs", "recall",
         "chat padded", "chat documents", "mixture"]  # fmt: skip
"""Every layout, every kind of record, tasks with and without padding, conversations, and a mixture of layouts."""


SHORT = (
    "{%- for m in messages %}{{ m['role'][0] }}:{{ m['content'] + eos_token }}{% endfor -%}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
"""A chat template that leaves answers room in short rows."""


def config(room, name, **knobs):
    """The Config of a component."""
    return registry.find(room, name).Config(name=name, **knobs)


def objective(*reads, ahead=1):
    """The config of an objective that reads these kinds of data."""
    return SimpleNamespace(name="made_up", component=SimpleNamespace(reads=reads, ahead=ahead))


def prepared(data, tokenizer, *, train_length, cache, ahead=1):
    """The corpus of a run with these configs, whose objective reads all there is."""
    asked = objective("text", "pairs", "labelled", "contrastive", ahead=ahead)
    model = SimpleNamespace(train_length=train_length)
    spec: Any = SimpleNamespace(data=data, tokenizer=tokenizer, model=model, objective=asked)
    return prepare(spec, cache=cache)


class Given(TextSource):
    """The documents that a test gives."""

    given: ClassVar[list[str]] = []

    def documents(self):
        return self.given


def texts(documents, **knobs):
    """The config of a source of these documents."""
    source = type("Given", (Given,), {"given": documents})
    return source.Config(name="given", **knobs)


def records(kind, given, **knobs):
    """The config of a source of these records."""
    source = type("Records", (RecordSource,), {"kinds": (kind,), "records": lambda self: given})
    return source.Config(name="given", **knobs)


def said(count, seed=0):
    """So many texts of 1 to 12 words, no two alike."""
    draw = random.Random(seed)
    made = {" ".join(draw.choices(WORDS, k=draw.randint(1, 12))): None for _ in range(20 * count)}
    return list(made)[:count]


def corpus(case, cache, *, train_length=24, ahead=1):
    """The corpus of one of CASES."""
    bytes_, symbols = config("tokenizer", "bytes"), config("tokenizer", "symbols", n_symbols=8)
    name, _, form = case.partition(" ")
    given = {"train_length": train_length, "cache": cache, "ahead": ahead}
    if name in ("stream", "documents", "padded"):
        return prepared(texts(said(60), packing=name, split="documents", val_fraction=0.3), bytes_, **given)
    if name in ("pairs", "labelled", "contrastive"):
        seconds = [text.split()[0] for text in said(60)] if name == "labelled" else said(60, seed=1)
        held = records(name, list(zip(said(60), seconds, strict=True)), val_fraction=0.3, overlong="truncate")
        return prepared(held, bytes_, **given)
    if name == "chat":
        talks = [[{"role": "user", "content": text}, {"role": "assistant", "content": text[:3]}] for text in said(40)]
        (cache / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
        (cache / "short.jinja").write_text(SHORT)
        knobs = {"form": "chat", "packing": form, "overlong": "truncate", "val_fraction": 0.3}
        knobs["template"] = str(cache / "short.jinja")
        return prepared(config("data", "files", path=str(cache / "talks.jsonl"), **knobs), bytes_, **given)
    if name == "mixture":
        for number, text in enumerate(said(60)):
            (cache / f"{number:02}.txt").write_text(text)
        source = {"name": "text", "path": f"{cache}/*.txt", "split": "documents", "val_fraction": 0.3}
        sources = {packing: source | {"packing": packing} for packing in ("stream", "documents", "padded")}
        return prepared(config("data", "mixture", sources=sources, weights={"padded": 2}), bytes_, **given)
    knobs = {"form": form} if form else {}
    knobs |= {"n_pairs": 2} if name == "recall" else {}
    return prepared(config("data", name, n_symbols=8, val_rows=37, **knobs), symbols, **given)


TASKS = [name for name in registry.names("data") if issubclass(registry.find("data", name), TaskSource)]
"""All tasks whose answers are known."""
