"""A folder of transformers checked where it lies: what its weights prove, spoilt in every way, and nothing written."""

import json
import sys
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

import recipes.check
from builder.cli import main
from builder.finding import Status
from builder.interop.bring import look
from builder.interop.checked import FOLDERS, check_hf
from builder.interop.proof import prove
from builder.interop.weights import Weights
from tests.interop.cases import CASES
from tests.interop.conftest import made

BYTES = {"vocab_size": 258, "eos_token_id": 256, "pad_token_id": 257}
Q, UP, HEAD = "model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama whose vocabulary has the size of bytes."""
    config, values = CASES["llama"]
    made(config(**values | BYTES)).save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def spoil(folder, change):
    """Writes the weights anew with a change to them."""
    file = folder / "model.safetensors"
    state = load_file(file)
    change(state)
    save_file({name: value.contiguous() for name, value in state.items()}, file)


def put(name, value):
    return lambda state: state[name].view(-1)[:1].fill_(value)


def narrowed(name):
    return lambda state: state.update({name: state[name][:-1].clone()})


def test_a_whole_folder_passes_and_nothing_is_written(folder):
    before = {path: path.read_bytes() for path in folder.rglob("*")}
    spec, report = check_hf(str(folder), probes=False)
    assert report.ok and spec.model == look(folder).spec and report.deploy
    rules = [finding.rule for finding in report.findings if finding.status is Status.PASS]
    assert "proven: every tensor of the model is there, and nothing else" in rules
    assert "proven: every weight is a finite number" in rules
    assert before == {path: path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("change", "section", "path", "said"),
    [
        (put(Q, float("nan")), 4, "model.attention", f"{Q}: not every number"),
        (put(HEAD, float("inf")), 6, "model.vocab_size", f"{HEAD}: not every number"),
        (narrowed(UP), 4, "model.ffn", f"{UP}: found (47, 32), expected (48, 32)"),
        (narrowed(HEAD), 6, "model.vocab_size", f"{HEAD}: found (257, 32), expected (258, 32)"),
        (lambda state: state.pop("model.norm.weight"), 4, "model.norm", "model.norm.weight: missing"),
        (lambda state: state.pop("model.layers.0.input_layernorm.weight"), 4, "model.norm", "missing"),
        (lambda state: state.update({"model.more": torch.ones(2)}), 4, "model", "model.more: unexpected, (2)"),
    ],
)
def test_spoilt_weights_fail_at_the_key_that_they_come_from(folder, change, section, path, said):
    assert all(finding.status is Status.PASS for finding in prove(look(folder)))
    spoil(folder, change)
    (failed,) = (finding for finding in prove(look(folder)) if finding.status is Status.FAIL)
    assert (failed.section, failed.path) == (section, path) and said in failed.found and failed.fix


def test_a_table_that_is_said_to_be_tied_must_be(tmp_path):
    config, values = CASES["llama tied, biases, wide heads"]
    made(config(**values)).save_pretrained(tmp_path)
    spoil(tmp_path, lambda state: state.update({HEAD: state["model.embed_tokens.weight"].clone()}))
    assert all(finding.status is Status.PASS for finding in prove(look(tmp_path)))
    spoil(tmp_path, put(HEAD, 3.0))
    (failed,) = (finding for finding in prove(look(tmp_path)) if finding.status is Status.FAIL)
    assert failed.path == "model.vocab_size" and "differs from the embedding" in failed.found


def test_no_more_than_a_tensor_is_read_at_once(folder, monkeypatch):
    """So that a folder of any size can be checked."""
    found, read, held = look(folder), Weights.__getitem__, []

    def watched(files, name):
        assert all(each() is None for each in held), "the one before is still there"
        tensor = read(files, name)
        held.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(Weights, "__getitem__", watched)
    assert all(finding.status is Status.PASS for finding in prove(found)) and len(held) == len(found.files.shapes)


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """call(*words): the exit code, the output and the errors of recipes.check."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["check", "probes=false", *words])
        code = 0
        try:
            main(recipes.check.job, "check", whole=tuple(FOLDERS))
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_the_command_has_every_form_and_lays_overrides_over(folder, call):
    code, out, err = call(f"hf={folder}", "model.deploy_length=128", "format=json")
    said = json.loads(out)
    assert code == 0 and err == "" and said["ledger"] and said["deploy"][0]["deploy_length"] == 128
    assert any(each["path"] == "model.position.theta" and each["status"] == "WARN" for each in said["findings"])
    for form, sign in (("markdown", "\n## 3. Positions\n"), ("text", "\n3. Positions\n"), ("table", " 3. Positions ")):
        code, out, err = call(f"hf={folder}", f"format={form}")
        assert code == 0 and sign in out and f"hf={folder}" in out.replace("\n", "") and "Deploy contract" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hf=nowhere"], "hf: nowhere doesn't exist"),
        (["run=nowhere"], "run: found 'nowhere'"),
        (["run=theirs"], "has no config.yaml"),
        (["hf=theirs", "run=theirs"], "the path of one folder"),
        (["hf=theirs", "arch=gpt2"], "arch: found gpt2"),
        (["hf=theirs", "coordinates=[16,32]"], "coordinates"),
        (["hf=theirs", "-m"], "leave out what begins with a dash"),
        (["hf=theirs", "format=xml"], "one of table, text, markdown, json"),
        (["hf=theirs", "model.n_layers=3"], "the checklist fails at model"),
    ],
)
def test_the_command_refuses_with_one_clear_error(folder, call, words, said):
    code, out, err = call(*words)
    assert code == 1 and err.startswith("error: ") and said in err and "Traceback" not in out + err


def test_an_unknown_family_is_named(folder, call):
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"model_type": "llamma"}))
    code, _, err = call(f"hf={folder}")
    assert code == 1 and "model_type: found 'llamma'" in err and "did you mean llama?" in err
