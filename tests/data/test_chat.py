"""Instruction data: what a chat template writes, which tokens are answers, and where each ends."""

import json

import pytest
import tokenizers
import torch
from transformers.utils.chat_template_utils import render_jinja_template

from builder.data import ValBatches
from builder.data.chat import DEFAULT, BadTemplate, Chat
from builder.data.tokenizer.bytes import Bytes
from builder.errors import ArchlabError
from builder.training.objective import shifted
from tests.data.runs import config, prepared

NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
SPECIALS = [*NAMES.values(), "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MARKED = (
    "{{ bos_token }}{%- for m in messages %}\n{%- if m.role == 'assistant' %}A: {% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}\n{%- elif loop.index0 > 9 %}{% break %}{% else %}{{ m.role | upper }}: "
    "{{ m.content | tojson }}\n{%- endif %}{%- endfor %}"
)
TALKS = [
    [("user", "Hi"), ("assistant", "Hello </s> there")],
    [
        ("system", "Be <|im_end|> kind."),
        ("user", " 1 + 1? "),
        ("assistant", "2\n"),
        ("user", "é?"),
        ("assistant", "ê!"),
    ],
    [("assistant", "I begin."), ("user", "And I end.")],
]


def messages(talk):
    return [{"role": role, "content": content} for role, content in talk]


def whole(pieces):
    return "".join(piece.token or piece.text for piece in pieces)


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("template", [DEFAULT, CHATML, MARKED])
def test_a_template_writes_what_transformers_make_of_it(template, talk):
    pieces = list(Chat(template, NAMES, SPECIALS).pieces(messages(talk)))
    given = {"chat_template": template, **NAMES}
    (text,), places = render_jinja_template([messages(talk)], return_assistant_tokens_mask=template is MARKED, **given)
    assert whole(pieces) == text
    if template is MARKED:
        assert [text[start:end] for start, end in places[0]] == [
            content + "</s>" for role, content in talk if role == "assistant"
        ]
        answers = "".join(text[start:end] for start, end in places[0])
    else:
        end = "</s>" if template is DEFAULT else "<|im_end|>"
        said = [content.strip() if template is CHATML else content for role, content in talk if role == "assistant"]
        answers = "".join(content + end for content in said)
    assert whole(piece for piece in pieces if piece.counted) == answers
    assert all((piece.token is None) == (piece.text != "") for piece in pieces)
    if (role_and_content := talk[0])[0] == "system":  # what a message holds is text, whatever it looks like
        assert any(role_and_content[1] in piece.text or "<|im_end|>" in piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% for m in messages %}", "line 1: Unexpected end of template"),
        ("{{ raise_exception('roles must take turns') }}", "roles must take turns"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ messages[0].__class__.__mro__ }}", "SecurityError"),
        (
            "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
            "isn't written behind the prompt",
        ),
    ],
)
def test_a_template_at_fault(template, told):
    with pytest.raises(BadTemplate, match=told):
        list(Chat(template, NAMES, SPECIALS).pieces(messages(TALKS[1])))


def corpus(home, talks, tokenizer=None, *, length=96, template=None, **knobs):
    (home / "talks.jsonl").write_text("".join(json.dumps({"messages": messages(talk)}) + "\n" for talk in talks))
    if template is not None:
        (home / "template.jinja").write_text(template)
        knobs["template"] = str(home / "template.jinja")
    data = config("data", "files", path=str(home / "talks.jsonl"), form="chat", val_fraction=0.3, **knobs)
    return prepared(data, tokenizer or config("tokenizer", "bytes"), train_length=length, cache=home / "cache")


MANY = [[("user", f"ask {number}"), ("assistant", "yes " * (number % 4) + "no")] for number in range(20)]


@pytest.mark.parametrize("packing", ["padded", "documents"])
def test_answers_with_their_ends_are_the_targets(tmp_path, packing):
    held = corpus(tmp_path, MANY, packing=packing)
    found = []
    for batch in [*ValBatches(held.train, batch=3), *ValBatches(held.val, batch=3)]:
        task = shifted(batch)
        assert task.loss_mask is not None
        for targets, counted in zip(task.targets, task.loss_mask, strict=True):
            found += "".join("$" if id == 256 else chr(id) for id in targets[counted].tolist()).split("$")[:-1]
    assert sorted(found) == sorted(talk[1][1] for talk in MANY)
    assert len(held.val.every()) and held.kind == "text" and held.val_bytes_per_token is None


@pytest.mark.parametrize("template", [None, CHATML, MARKED, "{{ bos_token }}" + MARKED])
def test_one_beginning_and_an_end_that_counts(tmp_path, monkeypatch, template):
    monkeypatch.setattr(Bytes, "bos", 258)
    made = config("tokenizer", "bytes", specials=("bos",))
    for batch in ValBatches(corpus(tmp_path, MANY, made, template=template).val, batch=1):
        ids, counted = batch["tokens"][0], batch["counted"][0]
        assert ids[0] == 258 and (ids == 258).sum() == 1 and not counted[0]
        assert ids[-1] == 256 and counted[-1]


def test_the_tokenizer_s_own_template_and_tokens(tmp_path):
    words = {
        token: number for number, token in enumerate([*SPECIALS, "ask", "yes", "no", "user", "assistant", "[UNK]"])
    }
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIALS)
    (tmp_path / "own").mkdir()
    backend.save(str(tmp_path / "own" / "tokenizer.json"))
    told = {"chat_template": CHATML, "eos_token": {"content": "<|im_end|>"}, "bos_token": None, "model_max_length": 9}
    (tmp_path / "own" / "tokenizer_config.json").write_text(json.dumps(told))
    asked = config("tokenizer", "file", path=str(tmp_path / "own" / "tokenizer.json"), eos="<|im_end|>")
    assert asked.beside == {"chat_template": CHATML, "eos_token": "<|im_end|>"}
    batch = next(
        iter(
            ValBatches(
                corpus(tmp_path, [[("user", f"ask {n}"), ("assistant", "yes")] for n in range(9)], asked).val, batch=1
            )
        )
    )
    start, end = words["<|im_start|>"], words["<|im_end|>"]
    expected = [start, words["user"], words["ask"], words["[UNK]"], end, start, words["assistant"], words["yes"], end]
    assert batch["tokens"][0].tolist() == expected
    assert batch["counted"][0].tolist() == [False] * 7 + [True] * 2
    several = [{"name": "tools", "template": "{{ 1 }}"}, {"name": "default", "template": "{{ 2 }}"}]
    (tmp_path / "own" / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert asked.beside == {"chat_template": "{{ 2 }}"}
    (tmp_path / "own" / "chat_template.jinja").write_text("{{ 3 }}")
    assert asked.beside == {"chat_template": "{{ 3 }}"}
    (tmp_path / "own" / "tokenizer_config.json").write_text("{")
    with pytest.raises(
        ArchlabError, match=r"tokenizer\.path: found .* beside which tokenizer_config.json can't be read"
    ):
        corpus(tmp_path, MANY, asked)


def test_conversations_longer_than_a_row(tmp_path):
    with pytest.raises(ArchlabError, match=r"data\.overlong: found refuse, and \d+ of 20 records longer"):
        corpus(tmp_path, MANY, length=40)
    dropped = corpus(tmp_path, MANY, length=40, overlong="drop")
    assert 0 < len(dropped.train.every()) < len(corpus(tmp_path, MANY).train.every())
    cut = corpus(tmp_path, MANY, length=40, overlong="truncate")
    assert max(batch["tokens"].shape[1] for batch in ValBatches(cut.train, batch=2)) == 40
    assert len(cut.train.every()) == len(corpus(tmp_path, MANY).train.every())


def test_a_prompt_is_on_one_side(tmp_path):
    talks = [[("user", f"ask {number % 5}"), ("assistant", str(number))] for number in range(20)]
    held = corpus(tmp_path, talks)
    sides = [{held.tokenizer.decode(row)[:15] for batch in ValBatches(side, batch=2) for row in batch["tokens"]}
             for side in (held.train, held.val)]  # fmt: skip
    assert all(sides) and not sides[0] & sides[1]


def test_a_template_that_can_not_be_used(tmp_path):
    with pytest.raises(ArchlabError, match=r"data\.template: found .*no such rule \(conversation 1"):
        corpus(tmp_path, MANY, template="{{ raise_exception('no such rule') }}")
    with pytest.raises(ArchlabError, match=r"data\.template: found '/no/where', which can't be read"):
        data = config("data", "files", path=str(tmp_path / "talks.jsonl"), form="chat", template="/no/where")
        prepared(data, config("tokenizer", "bytes"), train_length=96, cache=tmp_path)


def test_rows_are_those_of_any_rank(tmp_path):
    samples = corpus(tmp_path, MANY, packing="documents").train
    picks = samples.picks(0, 3, 4)
    rows, part = samples.rows(picks), samples.rows(picks, slice(1, None, 2))
    assert all(torch.equal(rows[key][1::2], part[key]) for key in rows)
    assert not (rows["counted"] & (rows["tokens"] == samples.pad)).any()
