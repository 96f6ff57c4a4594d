"""From the command line: a run trained on conversations is asked by its template, and answers."""

import json
import shutil
from functools import partial
from importlib import import_module

import pytest
import transformers

import builder.experiments.sample as sampling
import recipes.convert
import recipes.generate
import recipes.train
from builder import load_run
from builder.data.templated import with_chat
from builder.experiments.attention_maps import text as looked_at
from builder.generation.compiled import step_of
from tests.recipes.test_train_and_generate import call
from tests.tiny_run import TINY, without_probes

decoding = import_module("builder.generation.generate")  # which the function of that name hides
train = partial(call, recipes.train.job, "train")
generate = partial(call, recipes.generate.job, "generate")
TEMPLATE = (
    "{% for m in messages %}[{{ m.role[0] }}]{{ m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[a]{% endif %}"
)
EOS = 256


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run trained on conversations by its command, moved, and the files that it was made of gone."""
    home = tmp_path_factory.mktemp("home")
    talks = [[{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "no"}] for n in range(20)]
    (home / "talks.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    (home / "own.jinja").write_text(TEMPLATE)
    data = [f"data.{key}" for key in ("form=chat", "val_fraction=0.3", f"path={home}/talks.jsonl")]
    words = [*TINY, "data=files", *data, f"data.template={home}/own.jinja", "sample.prompt=5?"]
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        assert train(*words, f"output.root={home}/out", "output.name=made") == 0
    shutil.move(home / "out/main/made", home / "moved")
    for file in ("talks.jsonl", "own.jinja"):
        (home / file).unlink()
    return home / "moved"


@pytest.fixture
def ask(run, capsys, monkeypatch):
    """`generate` on that run: (exit code, what the model was given, stdout, stderr)."""
    seen = []
    whole = sampling.generate
    monkeypatch.setattr(sampling, "generate", lambda *args, **how: seen.append(how["tokens"]) or whole(*args, **how))

    def asked(*words: str):
        code = generate(f"run={run}", "temperature=0", "max_new_tokens=4", *words)
        return code, [ids for rows in seen[-1:] for ids in rows[0].tolist()], *capsys.readouterr()

    return asked


def test_a_prompt_is_a_message_of_the_user(run, ask):
    code, given, out, _ = ask("prompt=5?")
    assert (code, given) == (0, [*b"[u]5?", EOS, *b"[a]"]) and out.startswith("5?\n")
    assert (run / "samples/step-12.txt").read_text().startswith("5?\n")
    _, given, _, _ = ask("prompt=5?", "messages=[{role: system, content: Be kind}]")
    assert given == [*b"[s]Be kind", EOS, *b"[u]5?", EOS, *b"[a]"]


def test_as_it_stands_only_when_asked_for(ask):
    code, given, out, _ = ask("prompt=5?", "raw=true")
    assert (code, given) == (0, [*b"5?"]) and out.startswith("5?") and not out.startswith("5?\n")
    code, _, out, err = ask("prompt=5?", "raw=true", "messages=[{role: user, content: a}]")
    assert (code, out) == (1, "") and "messages: found 1 of them" in err


def test_compiled_when_asked_for_it_writes_the_same(run, ask, monkeypatch):
    seen = []
    monkeypatch.setattr(decoding, "step_of", lambda model, compile: seen.append(compile) or step_of(model, False))
    plain = ask("prompt=5?")
    assert ask("prompt=5?", "compile=true") == plain and seen == [False, True]
    code, _, out, err = ask("compile=true", f"draft={run}")
    assert (code, out) == (1, "") and "compile: found true" in err and "compile=false, or draft=null" in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
def test_what_torch_compiles_writes_the_same(ask):
    assert ask("prompt=5?", "compile=true") == ask("prompt=5?")


@pytest.mark.parametrize(("raw", "begins"), [(False, [*b"[u]5?", EOS, *b"[a]"]), (True, [*b"5?"])])
def test_what_is_looked_at_is_what_was_asked(run, raw, begins):
    made = load_run(run, "last")
    ids, _ = looked_at(made.model, with_chat(made.tokenizer, None) if raw else made.tokenizer, "5?")
    assert ids[: len(begins)] == begins


def test_an_exported_run_takes_its_template_along(run, tmp_path):
    assert call(recipes.convert.job, "convert", f"run={run}", "checkpoint=last", f"out={tmp_path}/out") == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    talk = [{"role": "user", "content": "5?"}]
    made = tokenizer.apply_chat_template(talk, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert made == [*b"[u]5?", EOS, *b"[a]"]
