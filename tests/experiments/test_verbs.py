"""What a model answers, by its kind and by what its head gives, against what the model itself says of the same ids."""

import io
import json

import pytest
import torch
from rich.console import Console
from torch.nn.functional import cosine_similarity

from builder import build, compose, load
from builder.data.chat import DEFAULT, Chat
from builder.data.templated import with_chat
from builder.data.tokenizer.bytes import Bytes
from builder.errors import ArchlabError
from builder.experiments.verbs import answer, refuse, refuse_unread, verb_of
from builder.sections import Message, SampleSpec

SMALL = [
    *("trainer=cpu", "model.d_model=16", "model.n_layers=1", "model.attention.n_heads=2", "model.ffn.d_ff=32"),
    *("model.train_length=16", "model.deploy_length=16"),
]
APART = "model.tie_embeddings=false"
KINDS = {
    "go_on": ["model.vocab_size=260"],
    "fill": ["model=encoder", "objective=masked", "model.vocab_size=260"],
    "classify": [
        *("model=encoder", "objective=classification", "data=passages", "model/head=classifier"),
        *("model.head.n_classes=3", APART, "model.vocab_size=260"),
    ],
    "tag": [
        *("model=encoder", "objective=classification", "data=passages", "model/head=token_classifier"),
        *("model.head.n_classes=2", APART, "model.vocab_size=260"),
    ],
    "embed": [
        *("model=encoder", "objective=contrastive", "data=passages", "data.form=contrastive"),
        *("model/head=sentence", APART, "model.vocab_size=260"),
    ],
}


def asked(verb, prompt, labels=(), **knobs):
    """(the model, its tokenizer, what it answers, what was shown)"""
    spec = load(compose([*SMALL, *KINDS[verb]]))
    model, words, file = build(spec.model, seed=0), Bytes(("mask",)), io.StringIO()
    model.n_tokens = len(words)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    said = SampleSpec(prompt=prompt, temperature=0, max_new_tokens=None, **knobs)
    refuse(spec.model, words, said)
    given = answer(model, words, said, Console(file=file, width=200), labels)
    return model, words, given, file.getvalue()


@pytest.mark.parametrize("verb", KINDS)
def test_each_kind_has_its_verb(verb):
    assert verb_of(load(compose([*SMALL, *KINDS[verb]])).model) == verb
    _, _, given, shown = asked(verb, "a b")
    assert given == shown and given.strip()


def test_the_likeliest_class_comes_first():
    model, words, given, _ = asked("classify", "abc", labels=("x", "y"))
    shares = model(torch.tensor([[*b"abc", words.eos]])).logits.softmax(-1)[0].tolist()
    named = dict(zip(("x", "y", "class 2"), shares, strict=True))
    told = {line.split("  ")[1]: float(line.split("%")[0]) for line in given.splitlines()}
    assert told == pytest.approx({name: 100 * share for name, share in named.items()}, abs=0.06)
    assert list(told) == sorted(named, key=named.__getitem__, reverse=True)


def test_each_token_has_its_class():
    model, _, given, _ = asked("tag", "abc", labels=("x", "y"))
    best = model(torch.tensor([list(b"abc")])).logits.argmax(-1)[0].tolist()
    assert [line.split()[-1] for line in given.splitlines()] == ["xy"[number] for number in best]
    assert [line.split()[0] for line in given.splitlines()] == ["'a'", "'b'", "'c'"]


def test_one_line_is_a_vector_and_several_are_compared():
    model, words, given, _ = asked("embed", "abc")
    vector = model(torch.tensor([[*b"abc", words.eos]])).logits[0]
    assert json.loads(given) == pytest.approx(vector.tolist(), abs=1e-5)
    model, words, given, _ = asked("embed", "abc\n\nxy")
    other = model(torch.tensor([[*b"xy", words.eos]])).logits[0]
    cosine = cosine_similarity(vector, other, dim=0).item()
    rows = [line.split() for line in given.splitlines()]
    assert [row[2] for row in rows] == ["abc", "xy"]
    assert [float(cell) for row in rows for cell in row[:2]] == pytest.approx([1, cosine, cosine, 1], abs=6e-4)
    assert abs(cosine) < 0.999


def test_a_mask_is_filled_with_the_likeliest():
    model, words, given, _ = asked("fill", "a<mask>c<mask>")
    ids = [97, words.named["mask"], 99, words.named["mask"], words.eos]
    logits = model(torch.tensor([ids])).logits[0, :, : len(words)]
    *masks, filled = given.splitlines()
    assert [line.split(":")[0] for line in masks] == ["mask 1", "mask 2"]
    best = [int(logits[place].argmax()) for place in (1, 3)]
    assert filled == words.decode([97, best[0], 99, best[1]])
    share = logits[1].softmax(-1).max().item()
    assert f" {share:.1%}" in masks[0].split(",")[0]


@pytest.mark.parametrize(("verb", "longest"), [("classify", 15), ("tag", 16), ("embed", 15), ("fill", 14)])
def test_what_is_too_long_is_refused_and_what_just_fits_is_not(verb, longest):
    asked(verb, "x" * longest)
    with pytest.raises(ArchlabError, match="found 17 tokens; between 1 and 16 are read"):
        asked(verb, "x" * (longest + 1))


def test_an_encoder_decoder_writes_what_it_makes_of_a_source():
    pairs = ["model=encoder_decoder", "model.cross.n_heads=2", "model.encoder.n_layers=1", "model.vocab_size=258"]
    spec = load(compose([*SMALL, *pairs, "objective=seq2seq", "data=reverse", "data.form=pairs"]))
    model, words, file = build(spec.model, seed=0), Bytes(), io.StringIO()
    assert verb_of(spec.model) == "go_on"
    told = answer(model, words, SampleSpec(prompt="abc", temperature=0, max_new_tokens=3), Console(file=file))
    ids, source = [words.start], torch.tensor([[*b"abc", words.eos]])
    for _ in range(3):
        ids.append(int(model(torch.tensor([ids]), source=source).logits[0, -1].argmax()))
    assert told == file.getvalue() and told.startswith("abc\n")
    written = ids[1 : ids.index(words.eos, 1)] if words.eos in ids[1:] else ids[1:]
    assert told == f"abc\n{words.decode(written)}\n"
    spoken = with_chat(words, Chat(DEFAULT, {"eos_token": "<eos>"}, [*words.specials]))  # is for decoders
    assert answer(model, spoken, SampleSpec(prompt="abc", temperature=0, max_new_tokens=3), Console(file=file)) == told
    with pytest.raises(ArchlabError, match="raw: found true"):
        refuse_unread(spec.model, spoken, compile=True, draft=None, raw=True)


@pytest.mark.parametrize("verb", KINDS)
def test_a_knob_that_nothing_reads_is_refused(verb):
    model, words = load(compose([*SMALL, *KINDS[verb]])).model, Bytes(("mask",))
    spoken = with_chat(words, Chat(DEFAULT, {"eos_token": "<eos>"}, [*words.specials]))
    asked = {"compile": True, "draft": "outputs/main/other", "raw": True}
    said = SampleSpec(prompt="a", messages=(Message(role="system", content="b"),))
    refuse_unread(model, words, compile=False, draft=None, raw=False)
    if verb == "go_on":
        refuse_unread(model, spoken, **asked)
        with pytest.raises(ArchlabError, match=r"(?s)^1 problem.*raw: found true.*nothing reads it.*fix: *raw=false"):
            refuse_unread(model, words, **asked)
        with pytest.raises(ArchlabError, match=r"prompt 29 "):  # 4 bytes, and 25 of the template
            refuse(model, spoken, SampleSpec(prompt="x" * 4))
    else:
        told = (
            r"(?s)^3 problems.*compile: found true.*compile=false.*draft: found 'outputs.*draft=null.*raw: found true"
        )
        with pytest.raises(ArchlabError, match=told):
            refuse_unread(model, spoken, **asked)
        refuse(model, spoken, SampleSpec(prompt="x" * 4))  # reads the text as it stands
    for tokenizer in (words,) if verb == "go_on" else (words, spoken):
        with pytest.raises(ArchlabError, match=r"(?s)messages: found 1 of them.*nothing reads them.*messages=\[\]"):
            refuse(model, tokenizer, said)
