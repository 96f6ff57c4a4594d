"""A run folder checked as it stands: its hash, tokenizer, labels and saved report, and with other values laid over."""

import json
import shutil

import pytest

from builder.checklist import check
from builder.compose import compose
from builder.errors import ArchlabError
from builder.experiments.checked import check_run
from builder.experiments.folder import RunFolder
from builder.finding import Status
from builder.load import load
from builder.model.assemble import build
from tests.tiny_run import TINY

LABELLED = ["model=encoder", "objective=classification", "model/head=classifier", "model.head.n_classes=2"]
LABELLED += ["model.tie_embeddings=false"]


def made(path, *words):
    """A run folder as it is before the first step."""
    spec = load(compose([*TINY, "data.path=gone.txt", f"output.root={path}", "output.name=run", *words]))
    folder = RunFolder.create(spec)
    tokenizer = spec.tokenizer.component.prepare(spec.tokenizer, (), path)
    tokenizer.save(folder.path)
    folder.write_json("checklist.json", check(spec, probes=False, tokenizer=tokenizer, trains=False).to_dict())
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of the run that may be spoilt."""
    shutil.copytree(kept.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def told(folder, *overrides):
    """The findings by path, those of the ordinary checklist left out."""
    spec, report = check_run(folder.path, overrides, probes=False)
    assert [f.section for f in report.findings] == sorted(f.section for f in report.findings) and report.deploy
    return spec, report, {finding.path: finding for finding in report.findings}


def test_what_was_made_is_as_it_was(folder):
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    spec, report, found = told(folder)
    assert report.ok and spec == folder.spec()
    assert found["run"].status is Status.PASS and spec.hash in found["run"].found
    assert found["checklist.json"].status is Status.PASS and "nothing" in found["checklist.json"].found
    assert "model.head.n_classes" not in found
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_what_the_report_says_otherwise_than_it_did_is_told(folder):
    saved = json.loads((folder.path / "checklist.json").read_text())
    theta = next(each for each in saved["findings"] if each["path"] == "model.position.theta")
    theta["status"], theta["found"] = "PASS", "theta 7"
    folder.write_json("checklist.json", saved)
    _, report, found = told(folder)
    (finding,) = (each for each in report.findings if each.path == "checklist.json")
    assert report.ok and finding.status is Status.WARN
    assert "model.position.theta: WARN" in finding.found and "then PASS, theta 7" in finding.found


def test_overrides_are_laid_over_the_frozen_config(folder):
    spec, report, found = told(folder, "model.deploy_length=16")
    assert report.ok and spec.model.deploy_length == 16 and spec.model.d_model == 16
    assert "model.position.theta: PASS" in found["checklist.json"].found  # it was a WARN at 32
    assert found["checklist.json"].status is Status.PASS


@pytest.mark.parametrize(
    ("word", "fits"), [("model.position.theta=5.0", True), ("model.d_model=32", False), ("model.n_layers=2", False)]
)
def test_weights_must_fit_what_is_laid_over(folder, word, fits):
    spec, report, _ = told(folder, word)
    rule = "what is changed must leave the weights of the folder as they are"
    (finding,) = (each for each in report.findings if each.rule == rule)
    had, has = (build(each.model, device="meta").state_dict() for each in (folder.spec(), spec))
    same = {key: value.shape for key, value in had.items()} == {key: value.shape for key, value in has.items()}
    assert report.ok == fits == same and finding.status is (Status.PASS if fits else Status.FAIL)


@pytest.mark.parametrize(("names", "status"), [(["a", "b"], Status.PASS), (["a", "b", "c"], Status.FAIL)])
def test_labels_are_those_of_the_head(tmp_path, names, status):
    folder = made(tmp_path, *LABELLED)
    folder.write_json("summary.json", {"labels": names})
    assert told(folder)[2]["model.head.n_classes"].status is status


def test_what_is_no_run_or_was_changed_is_refused(folder, tmp_path):
    def refusal(path, *overrides):
        with pytest.raises(ArchlabError) as refused:
            check_run(path, overrides, probes=False)
        return str(refused.value)

    assert "doesn't exist" in refusal(tmp_path / "nowhere") and f"{folder.path}" in refusal(tmp_path)
    assert "arch: found gpt2" in refusal(folder.path, "arch=gpt2")
    assert "model.d_modell" in refusal(folder.path, "model.d_modell=3")
    (folder.path / "checklist.json").write_text("{")
    assert "checklist.json is no JSON" in refusal(folder.path)
    config = folder.config.read_text()
    folder.config.write_text(config.replace("d_ff: 32", "d_ff: 48"))
    assert "it was changed after the run" in refusal(folder.path)
