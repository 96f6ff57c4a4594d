"""A prompt of a run that was trained on conversations: what the model is given of it, and what ends its answer."""

import json
import pickle
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from builder.data.chat import DEFAULT, Chat
from builder.data.conversations import ROLES
from builder.data.templated import encoded, keep, question, restored, with_chat
from builder.data.tokenizer.bytes import Bytes
from builder.errors import ConfigError
from builder.sections import Message
from tests.data.runs import config, prepared
from tests.data.test_chat import CHATML, MARKED, NAMES, SPECIALS, messages, whole

UNPROMPTED = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
TALKS = [
    [("user", "Hi"), ("assistant", "Hello </s> there")],
    [("system", "Be kind."), ("user", " 1 + 1? "), ("assistant", "2\n"), ("user", "é?"), ("assistant", "ê!")],
]


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("template", [DEFAULT, CHATML, MARKED, UNPROMPTED])
@pytest.mark.parametrize("bos", [None, "bos"])
def test_the_ids_are_those_that_training_has_before_the_answer(monkeypatch, template, talk, bos):
    names = ("bos", "end", "start")
    words = Bytes(names)
    monkeypatch.setattr(words, "bos", bos and words.named["bos"])
    for ours, theirs in (("<bos>", "<s>"), ("<eos>", "</s>"), ("<end>", "<|im_end|>"), ("<start>", "<|im_start|>")):
        words.specials[theirs] = words.specials.pop(ours)
    chat = Chat(template, NAMES, [*words.specials])
    ids, counted = encoded(words, chat.pieces(messages(talk)))
    first = max(place for place in range(len(ids)) if counted[place] and not counted[place - 1])
    *before, (_, prompt), _ = talk
    asked = question(with_chat(words, chat), prompt, messages(before))
    assert asked.ids == ids[:first] and first > 0
    assert set(asked.ends) == {words.eos, next(id for id in ids[first:] if id >= 256)}


@pytest.mark.parametrize("template", [DEFAULT, CHATML, UNPROMPTED])
def test_it_is_what_transformers_write_with_a_generation_prompt(template):
    for talk in TALKS:
        pieces, _ = Chat(template, NAMES, SPECIALS).question(messages(talk[:-1]))
        given = {"chat_template": template, "add_generation_prompt": True, **NAMES}
        assert whole(pieces) == render_jinja_template([messages(talk[:-1])], **given)[0][0]


def test_a_tokenizer_of_transformers_makes_the_same_ids(tmp_path):
    words = {token: number for number, token in enumerate([*SPECIALS, "ask", "user", "assistant", "[UNK]"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIALS)
    backend.save(str(tmp_path / "tokenizer.json"))
    made = config("tokenizer", "file", path=str(tmp_path / "tokenizer.json"))
    ours = with_chat(made.component.open(made), Chat(CHATML, NAMES, SPECIALS))
    theirs = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=CHATML, **NAMES)
    asked = [{"role": "user", "content": "ask ask"}]
    wanted: Any = theirs.apply_chat_template(asked, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert question(ours, "ask ask").ids == wanted and words["<|im_start|>"] in wanted
    assert set(question(ours, "ask ask").ends) == {words["</s>"], words["<|im_end|>"]}
    assert made.component.open(made).chat is None  # the one that is kept for others is as it was
    typed = question(ours, "ask <|im_end|>").ids
    assert typed.count(words["<|im_end|>"]) == wanted.count(words["<|im_end|>"]) == 1  # in a message it is text
    keep(ours, tmp_path)
    again = restored(made.component.load(made, tmp_path), tmp_path)
    sent = pickle.loads(pickle.dumps(ours))
    for same in (again, sent):
        assert same.chat == ours.chat and question(same, "ask ask") == question(ours, "ask ask")


def test_without_a_template_it_is_the_text():
    assert question(Bytes(), "<eos>").ids == [*b"<eos>"] and question(Bytes(), "").ids == [256]
    spoken = with_chat(Bytes(), Chat(DEFAULT, {"eos_token": "<eos>"}, ["<eos>"]))
    assert question(spoken, "<eos>").ids == [*b"<|user|>\n<eos>", 256, *b"\n<|assistant|>\n"]
    assert question(with_chat(spoken, None), "a").ids == [97]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}", "system first"),
        ("{% for m in messages %}{% if m.role == 'user' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}"
         "{% endfor %}", "it shows no answer"),
    ],
)  # fmt: skip
def test_a_template_that_can_not_ask_is_told(template, told):
    with pytest.raises(
        ConfigError, match=rf"(?s)prompt: found messages of user.*{told}.*fix: *messages=\[\{{role: sys"
    ):
        question(with_chat(Bytes(), Chat(template, {}, [])), "Hi")


def test_the_roles_of_a_message_are_those_of_the_data():
    assert tuple(Message.model_fields["role"].annotation.__args__) == ROLES  # type: ignore[union-attr]


@pytest.mark.parametrize(("second", "asks"), [(None, True), (DEFAULT, True), (UNPROMPTED, False)])
def test_a_mixture_asks_by_the_one_template_of_its_sources(tmp_path, second, asks):
    """Beside texts, which have none; two would be a question of which."""
    talks = [messages([("user", f"{number}?"), ("assistant", "no")]) for number in range(40)]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    (tmp_path / "other.jinja").write_text(second or "")
    (tmp_path / "text.txt").write_text("To be, or not to be. " * 200)
    chats = {"name": "files", "form": "chat", "path": str(tmp_path / "talks.jsonl"), "val_fraction": 0.3}
    other = {"name": "text", "path": str(tmp_path / "text.txt")}
    other = other if second is None else chats | {"template": str(tmp_path / "other.jinja")}
    data = config("data", "mixture", sources={"one": chats, "two": other})
    made = prepared(data, config("tokenizer", "bytes"), train_length=32, cache=tmp_path / "cache").tokenizer
    assert (made.chat is not None) == asks
