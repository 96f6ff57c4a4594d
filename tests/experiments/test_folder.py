"""A run folder: frozen, whole, its own identity; what doesn't fit is refused with both sides named."""

import json
import shutil

import pytest
import torch
import yaml
from rich.console import Console

from builder import load_run
from builder.errors import ArchlabError
from builder.experiments.checked import check_run
from builder.experiments.folder import RunFolder
from builder.experiments.metrics import read_metrics, rewind
from builder.experiments.train import Refused, train
from tests.tiny_run import only_run, plant, resumed, rows, spec_of, summary, trained, without_probes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def made(home):
    """A run that was trained; tests that change it work on a copy."""
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        return trained(home, "output.name=made", "optimizer.lr=1e-4").path


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


@pytest.fixture
def half(home, tmp_path, monkeypatch):
    """A run that failed in step 6, with a checkpoint of step 4."""
    with monkeypatch.context() as patch:
        plant(patch, 6, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trained(tmp_path)
    return only_run(tmp_path)


def test_holds_what_the_design_lists(made):
    assert {file.name for file in made.iterdir()} == {
        "config.yaml",
        "checklist.json",
        "sheet.md",
        "metrics.jsonl",
        "summary.json",
        "checkpoints",
        "samples",
    }
    assert json.loads((made / "checklist.json").read_text())["ok"] is True
    assert (made / "samples/step-12.txt").read_text().startswith("The ")
    assert RunFolder(made).spec().hash in (made / "sheet.md").read_text()


def test_nothing_half_written_stays(made, half):
    for path in (made, half):
        assert not list(path.rglob("*.part"))
        assert not [file for file in path.rglob(".*") if file.is_file()]


def test_the_config_is_frozen_with_every_default(made, home):
    text = (made / "config.yaml").read_text()
    assert "???" not in text
    assert "${" not in text
    config = yaml.safe_load(text)
    assert config["optimizer"].keys() >= {"name", "lr", "betas", "eps", "weight_decay", "head_lr"}
    assert config["model"]["vocab_size"] == 258
    assert config["model"]["attention"].keys() > {"n_heads", "n_kv_heads", "d_head"}
    spec = RunFolder(made).spec()
    assert spec == spec_of(home, "output.name=made", "optimizer.lr=1e-4")
    assert spec.optimizer.lr == 1e-4  # type: ignore[attr-defined]
    assert f"# hash: {spec.hash}" in text.splitlines()


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff\xfe"])
@pytest.mark.parametrize("use", [load_run, resumed, check_run])
def test_a_damaged_file_is_named(copy, content, use):
    (copy / "summary.json").write_bytes(content)
    with pytest.raises(ArchlabError, match=r"summary\.json .* any more.*; restore it, or take it away"):
        use(copy)
    (copy / "config.yaml").write_bytes(content)
    with pytest.raises(ArchlabError, match=r"config\.yaml: it (isn't YAML|holds no config) any more"):
        use(copy)


@pytest.mark.parametrize(("old", "new"), [("seed: 0", "seed: 1"), ("lr: 0.0001", "lr: 0.001"), ("d_ff: 32", "d_ff: 8")])
@pytest.mark.parametrize("use", [load_run, resumed])
def test_an_edited_config_is_refused_with_both_hashes(copy, old, new, use):
    config, hash_before = copy / "config.yaml", RunFolder(copy).spec().hash
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    with pytest.raises(ArchlabError, match=rf"it states the hash {hash_before} and its content has [0-9a-f]{{16}}: "):
        use(copy)


def test_a_config_without_its_hash_is_refused(copy):
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text("\n".join(line for line in text.splitlines() if "hash" not in line))
    with pytest.raises(ArchlabError, match="it states the hash None"):
        load_run(copy)


def test_a_checkpoint_of_another_config_is_refused(copy, half):
    for name in ("best", "last"):
        shutil.copy(copy / f"checkpoints/{name}.ckpt", half / f"checkpoints/{name}.ckpt")
    ours, theirs = RunFolder(half).spec().hash, RunFolder(copy).spec().hash
    before, said = rows(half), summary(half)
    for use in (load_run, resumed):
        with pytest.raises(ArchlabError, match=f"written under config {theirs}, and this run's config is {ours}"):
            use(half)
    assert (rows(half), summary(half)) == (before, said)  # nothing was touched


def test_a_torn_checkpoint_is_refused(copy, half):
    for path, use in ((copy, load_run), (half, resumed)):
        for file in (path / "checkpoints").iterdir():
            file.write_bytes(file.read_bytes()[:1000])
        with pytest.raises(ArchlabError, match="the checkpoint is damaged"):
            use(path)
    assert summary(half)["status"] == "failed"


def test_a_missing_checkpoint_lists_those_there(copy):
    (copy / "checkpoints/best.ckpt").unlink()
    with pytest.raises(ArchlabError, match=r"no such checkpoint; there are: last, step-000008, step-000012$"):
        load_run(copy)


def test_another_models_weights_are_refused(copy):
    file = copy / "checkpoints/best.ckpt"
    contents = torch.load(file, weights_only=True)
    contents["state_dict"]["extra"] = contents["state_dict"].pop("final_norm.weight")
    torch.save(contents, file)
    with pytest.raises(ArchlabError, match=r"missing \['final_norm.weight'\], unexpected \['extra'\]"):
        load_run(copy)


@pytest.mark.parametrize(("use", "key"), [(load_run, "run"), (resumed, "resume")])
def test_no_run_there(home, made, tmp_path, use, key):
    with pytest.raises(ArchlabError, match=rf"^{key}: found '{tmp_path}/nope', which doesn't exist; give the folder"):
        use(tmp_path / "nope")
    with pytest.raises(ArchlabError, match=rf"has no config\.yaml; runs below it: {made}"):
        use(home / "out")
    with pytest.raises(ArchlabError, match=r"has no config\.yaml; give the folder of a run"):
        use(made / "checkpoints")


def test_a_name_that_is_taken(home, made):
    before = (made / "config.yaml").read_bytes()
    with pytest.raises(ArchlabError, match=rf"^output\.name: found 'made'.*resume={made}"):
        trained(home, "output.name=made")
    assert (made / "config.yaml").read_bytes() == before


def test_a_root_that_cannot_hold_a_folder(home, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArchlabError, match=r"^output: .* can't be created"):
        trained(home, f"output.root={tmp_path}/file")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("model.vocab_size=100", r"the checklist fails at .*model\.vocab_size"),
        ("sample.max_new_tokens=40", r"the checklist fails at .*sample\.max_new_tokens"),
    ],
)
def test_what_fails_before_the_first_step_leaves_no_folder(tmp_path, wrong, said):
    with pytest.raises(Refused, match=said) as error:
        trained(tmp_path, wrong)
    assert error.value.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_rewinding_metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 4}\n{"step": 4, "val/loss": NaN}\n{"step": 6}\n{"step": 8, "tr')
    rewind(path, 4)
    assert [row["step"] for row in read_metrics(path)] == [2, 4, 4]
    rewind(path, 0)
    assert path.read_text() == ""
    rewind(tmp_path / "new.jsonl", 0)
    assert (tmp_path / "new.jsonl").read_text() == ""
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_line_costs_no_other(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 2}\n{"st\n{"step": 4}\n[7]\n\xff\xfe\n{"step": 6}\n{"step": 8}\n')
    assert rewind(path, 6) == [2, 4, 5]
    assert path.read_text() == '{"step": 2}\n{"step": 4}\n{"step": 6}\n'
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == b'{"st\n[7]\n\xff\xfe\n'
    assert rewind(path, 6) == []


@pytest.mark.parametrize("key", ["accelerator=gpu", "precision=nonsense", "max_time=nonsense"])
def test_a_trainer_that_this_machine_refuses_leaves_no_folder_and_is_not_told_it_is_ready(tmp_path, capsys, key):
    name, _, word = key.partition("=")
    asked = [f"trainer.accelerator={'tpu' if torch.cuda.is_available() else 'gpu'}"] if word == "gpu" else []
    with pytest.raises(ArchlabError, match=rf"trainer\.{name}: found"):
        train(spec_of(tmp_path, *(asked or [f"++trainer.{key}"])), Console())
    assert not (tmp_path / "out").exists() and "ready to train" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../up", "a/../../b", "/abs", ""])
def test_a_run_stays_below_its_root(tmp_path, name):
    with pytest.raises(ArchlabError, match=r"output\.name"):
        trained(tmp_path, f"output.name='{name}'")


def test_a_config_that_is_no_yaml_any_more(tmp_path):
    path = trained(tmp_path).path
    (path / "config.yaml").write_text("{{{")
    with pytest.raises(ArchlabError, match="isn't YAML"):
        load_run(path)
