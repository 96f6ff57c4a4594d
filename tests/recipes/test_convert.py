"""From the command line: a folder of transformers becomes a run that generates, and goes back bit for bit."""

import json
import os
import sys
from functools import partial

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports transformers

import pytest
import tokenizers
import torch
import transformers as tf
from safetensors.torch import load_file

import recipes.convert
import recipes.generate
from builder import load_run
from builder.cli import main

WORDS = ["<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz ."]


def call(job, name, *words):
    """Runs a command in this process; gives its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        try:
            main(job, name)
        except SystemExit as end:
            return end.code
    return 0


convert = partial(call, recipes.convert.job, "convert")
generate = partial(call, recipes.generate.job, "generate")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny GPT-2 whose vocabulary holds its 29 tokens and no padding token."""
    monkeypatch.chdir(tmp_path)
    config = tf.GPT2Config(
        vocab_size=29, n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0
    )  # fmt: skip
    tf.GPT2LMHeadModel(config).save_pretrained("theirs")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({word: n for n, word in enumerate(WORDS)}, []))
    backend.add_special_tokens(WORDS[:1])
    backend.save("theirs/tokenizer.json")
    return tmp_path / "theirs"


def test_in_generate_and_out_again(folder, tmp_path, capsys):
    assert convert(f"hf={folder}", "out=runs/mine") == 0
    out, err = capsys.readouterr()
    assert err == "" and "ready to train" in out and "run folder runs/mine" in out
    run = tmp_path / "runs/mine"
    assert json.loads((run / "summary.json").read_text())["status"] == "imported"
    assert {"config.yaml", "checklist.json", "sheet.md", "tokenizer.json"} <= {path.name for path in run.iterdir()}

    assert generate(f"run={run}", "prompt=a cat", "max_new_tokens=5", "seed=0") == 0
    assert capsys.readouterr().out.startswith("a cat")

    mine, theirs = load_run(run), tf.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokens = torch.tensor([mine.tokenizer.encode("a cat sat")])
    assert (mine.model(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-5
    assert mine.tokenizer.eos == mine.tokenizer.pad == 0 and len(mine.tokenizer) == 29

    assert convert(f"run={run}", "out=back") == 0
    assert "holds a gpt2 model" in capsys.readouterr().out
    one, two = load_file(folder / "model.safetensors"), load_file("back/model.safetensors")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    again = tf.AutoTokenizer.from_pretrained("back")
    assert again.encode("a cat") == mine.tokenizer.encode("a cat") and again.eos_token == "<|endoftext|>"


def test_a_run_folder_is_not_written_over(folder, capsys):
    assert convert(f"hf={folder}", "out=runs/mine") == 0
    assert convert(f"hf={folder}", "out=runs/mine") == 1
    assert "holds something already" in capsys.readouterr().err


def test_without_a_tokenizer_only_a_vocabulary_of_bytes_is_taken(folder, tmp_path, capsys):
    (folder / "tokenizer.json").unlink()
    assert convert(f"hf={folder}", "out=runs/mine") == 1
    assert "has no tokenizer.json, and 29 rows aren't bytes" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    config = tf.GPT2Config(vocab_size=258, n_embd=32, n_layer=1, n_head=2, n_positions=32)
    tf.GPT2LMHeadModel(config).save_pretrained("bytes")
    assert convert("hf=bytes", "out=runs/bytes") == 0
    assert "text is read as bytes" in capsys.readouterr().out
    assert convert("run=runs/bytes", "out=back") == 0
    text = "né <0x41>\n"
    assert tf.AutoTokenizer.from_pretrained("back").encode(text) == list(text.encode())
    assert convert("hf=back", "out=runs/again") == 0
    assert load_run("runs/again").tokenizer.encode(text) == list(text.encode())


def test_an_import_that_fails_the_checklist_says_so(folder, capsys):
    backend = tokenizers.Tokenizer.from_file("theirs/tokenizer.json")
    backend.add_tokens(["more", "than", "rows"])
    backend.save("theirs/tokenizer.json")
    assert convert(f"hf={folder}", "out=runs/mine") == 1
    assert "the checklist fails at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["out=x"], "one source"),
        (["hf=a", "run=b", "out=x"], "one source"),
        (["hf=theirs", "out=x", "family=llama"], "family: found 'llama'"),
        (["hf=theirs"], "out: found ???"),
        (["hf=nowhere", "out=x"], "nowhere doesn't exist"),
        (["run=nowhere", "out=x"], "doesn't exist"),
        (["hf=theirs", "out=x", "model.d_model=3"], "no such key"),
        (["run=b", "out=x", "dtype=int8"], "dtype: found 'int8'"),
    ],
)
def test_a_wrong_command_is_answered(folder, capsys, words, said):
    assert convert(*words) == 1
    assert said in capsys.readouterr().err
