"""One process at a time writes to a run folder, and is named; ranks of a run share it, and readers ask for nothing."""

import os
import subprocess
import sys

import pytest

from builder.errors import ArchlabError
from builder.experiments import claim as claims
from builder.experiments.claim import Claim, writer
from builder.experiments.folder import RunFolder
from tests.tiny_run import resumed, spec_of

HOLDER = """
import sys, time
from pathlib import Path
from builder.experiments.claim import Claim
claim = Claim()
claim.take(Path(sys.argv[1]), "run")
print("taken", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "WAIT", 0.0)
    return RunFolder.create(spec_of(tmp_path, "output.name=run"))


def test_a_second_writer_is_refused_and_names_the_first(folder, tmp_path):
    me = f"the process {os.getpid()}" if claims._LOCKS.exists() else "another process"
    before = sorted(folder.path.rglob("*"))
    with Claim() as first:
        first.take(folder.config, "resume")
        with pytest.raises(ArchlabError, match=rf"^resume: found '{folder.path}', to which {me} is writing; wait"):
            resumed(folder.path)
        with pytest.raises(ArchlabError, match=rf"{folder.path} holds something already, and {me} is writing to it"):
            RunFolder.create(spec_of(tmp_path, "output.name=run"))
        assert folder.spec() and sorted(folder.path.rglob("*")) == before
    assert writer(folder.config) is None


def test_ranks_share_it_and_the_last_one_lets_go(folder):
    ready, rank, other = Claim(), Claim(), Claim()
    with rank:
        with ready:
            ready.take(folder.config, "resume")
            with pytest.raises(ArchlabError, match="is writing to it"):
                rank.share(folder.config)
            ready.share(folder.config)
            rank.share(folder.config)
        with pytest.raises(ArchlabError, match="is writing; wait"), other:
            other.take(folder.config, "resume")
    with Claim() as free:
        free.take(folder.config, "resume")


def test_a_claim_dies_with_its_process(folder):
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder.config)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "taken\n"
    assert writer(folder.config) is not None
    child.kill()
    child.wait()
    child.stdout.close()
    assert writer(folder.config) is None


def test_of_two_that_begin_at_once_one_does(folder):
    text = folder.config.read_text()
    assert not folder._freeze("another") and folder.config.read_text() == text
    assert [file.name for file in folder.path.iterdir()] == ["config.yaml"]
