"""Text from a model: as it is in a pipe, and harmless to a terminal."""

import io

import pytest
import torch
from rich.console import Console

from builder import build
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
    assert request(tokenizer, SampleSpec(prompt=""), 8) == ([256], 7)
    assert request(tokenizer, SampleSpec(prompt="ab"), 8) == ([97, 98], 6)
    assert request(tokenizer, SampleSpec(prompt="ab", max_new_tokens=6), 8) == ([97, 98], 6)
    for spec in (SampleSpec(prompt="ab", max_new_tokens=7), SampleSpec(prompt="x" * 8)):
        with pytest.raises(GenerationError, match=r"= 9 tokens"):
            request(tokenizer, spec, 8)
