"""Text from a model: as it is in a pipe, and harmless to a terminal."""

import io

import pytest
import torch
from rich.console import Console

from builder import build
from builder.data.chat import Chat
from builder.data.templated import Question, with_chat
from builder.data.tokenizer.bytes import Bytes
from builder.experiments.sample import request, sample
from builder.generation.request import GenerationError
from builder.generation.sampling import Sampler
from builder.sections import SampleSpec
from tests.tiny_run import spec_of


@pytest.mark.parametrize(("terminal", "shown"), [(False, "a\x1b[2J\tb\n\x07"), (True, "a\ufffd[2J\tb\n\ufffd")])
def test_control_characters(tmp_path, monkeypatch, terminal, shown):
    ids = iter(b"\x1b[2J\tb\n\x07")
    monkeypatch.setattr(Sampler, "__call__", lambda *_, **__: (torch.tensor([next(ids)]), torch.zeros(1)))
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, color_system=None)
    model = build(spec_of(tmp_path).model, seed=0)
    text = sample(model, Bytes(), SampleSpec(prompt="a", max_new_tokens=8), console)
    assert file.getvalue() == f"{shown}\n"
    assert text == "a\x1b[2J\tb\n\x07\n"


def test_markup_is_text(tmp_path):
    file = io.StringIO()
    model = build(spec_of(tmp_path).model, seed=0)
    prompt = "[red]x[/red] 'y' 12"
    sample(model, Bytes(), SampleSpec(prompt=prompt, max_new_tokens=1), Console(file=file, force_terminal=True))
    assert prompt in file.getvalue()


def test_what_is_asked_for():
    tokenizer = Bytes()
    assert request(tokenizer, SampleSpec(prompt=""), 8) == (Question([256], (256,)), 7)
    assert request(tokenizer, SampleSpec(prompt="ab"), 8) == (Question([97, 98], (256,)), 6)
    assert request(tokenizer, SampleSpec(prompt="ab", max_new_tokens=6), 8) == (Question([97, 98], (256,)), 6)
    for spec in (SampleSpec(prompt="ab", max_new_tokens=7), SampleSpec(prompt="x" * 8)):
        with pytest.raises(GenerationError, match=r"= 9 tokens"):
            request(tokenizer, spec, 8)


def test_an_answer_stands_on_its_own_line_and_ends_where_the_template_ends_it(tmp_path, monkeypatch):
    words = Bytes(("end",))
    template = "{% for m in messages %}{{ m.content }}<end>\n{% endfor %}"
    ids = iter([*b"no", words.named["end"], *b"more"])
    monkeypatch.setattr(Sampler, "__call__", lambda *_, **__: (torch.tensor([next(ids)]), torch.zeros(1)))
    model = build(spec_of(tmp_path, "model.vocab_size=260").model, seed=0)
    spoken, console = with_chat(words, Chat(template, {}, [*words.specials])), Console(file=io.StringIO())
    assert sample(model, spoken, SampleSpec(prompt="ask", max_new_tokens=8), console) == "ask\nno\n"
    assert list(ids) == [*b"more"]
