"""Completion: what may be typed next, in bash itself, and in no time."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from builder.checklist.form import FORMS
from builder.cli import main
from builder.completion import knobs
from builder.completion.shell import suggest
from builder.compose import ROOT

TRAIN = "python -m recipes.train "


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of its own, in which the schema is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield knobs.schema()


@pytest.mark.parametrize(
    ("line", "there", "missing"),
    [
        ("python -m recipes.tr", ["recipes.train "], ["recipes.check "]),
        (TRAIN, ["arch=", "model/position=", "model.", "seed=", "sweep="], ["hydra/sweeper=", "run="]),
        (TRAIN + "model/position=", ["model/position=alibi ", "model/position=rope "], ["model/position="]),
        (TRAIN + "arch=mixt", ["arch=mixtral_8x7b "], ["arch=gpt2 "]),
        (TRAIN + "experiment=n", ["experiment=norms "], ["experiment=recall "]),
        (TRAIN + "-m model/attention=mha,mq", ["model/attention=mha,mqa "], ["model/attention=mqa "]),
        # n_heads stands in a YAML, the others only in the code
        (TRAIN + "model.attention.", [f"model.attention.{key}=" for key in ("n_heads", "window", "qk_norm_at")],
            ["model.attention.d_rope="]),
        (TRAIN + "arch=deepseek_v3 model.attention.", ["model.attention.d_rope="], ["model.attention.n_kv_heads="]),
        (TRAIN + "model/ffn=moe model.ffn.", ["model.ffn.router.", "model.ffn.expert.", "model.ffn.top_k="], []),
        (TRAIN + "model/attention@model.near=gqa model.near.q", ["model.near.qk_norm."], ["model.attention.qk_norm."]),
        (TRAIN + "model.norm.name=", ["model.norm.name=layernorm ", "model.norm.name=rmsnorm "], []),
        (TRAIN + "model.tie_embeddings=", ["model.tie_embeddings=true ", "model.tie_embeddings=false "], []),
        (TRAIN + "++model.d_m", ["++model.d_model="], ["model.d_model="]),
        (TRAIN + "broken=[ model/nor", ["model/norm="], []),
        (TRAIN + "trainer.precision=b", ["trainer.precision=bf16-mixed "], ["trainer.precision=32-true "]),
        ("python -m recipes.check schema=p", ["schema=partial "], ["schema=true "]),
        ("python -m recipes.generate ", ["prompt=", "run="], ["model.", "seed="]),
    ],
)  # fmt: skip
def test_what_may_come_next_is_told(line, there, missing):
    found = suggest(line)
    assert set(there) <= set(found) and not set(missing) & set(found)
    assert all(word.startswith(line.rpartition(" ")[2]) for word in found)


def test_every_form_of_a_checklist_is_told():
    line = "python -m recipes.check format="
    assert suggest(line) == [f"format={form} " for form in sorted([*FORMS, "json"])]


@pytest.mark.parametrize(
    "line", ["python train.py mod", "python -m json.tool mod", "python -m recipes.nope x", "python -m"]
)
def test_other_commands_are_left_alone(line):
    assert suggest(line) == []


def test_it_is_quick_and_prints_nothing_else():
    line = TRAIN + "model/ffn=moe model.ffn.router."
    begun = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "builder.completion"],
        env=os.environ | {"COMP_LINE": line, "COMP_POINT": str(len(line))}, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert all(word.startswith("model.ffn.router.") for word in run.stdout.split("\n")[:-1]) and run.stdout
    assert time.monotonic() - begun < 10  # on a busy machine; what would make it slow is:
    assert not re.search(r"\| +(torch|lightning|transformers|pydantic)\n", run.stderr) and "omegaconf\n" in run.stderr


class Bash:
    """A real bash on a terminal of its own."""

    def __init__(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ |= {
                "PS1": "> ",
                "TERM": "dumb",
                "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
            }
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])

    def type(self, text, until):
        """Types, and reads until what is shown matches; gives what was shown."""
        os.write(self.terminal, text.encode())
        shown, end = "", time.monotonic() + 30
        while not re.search(until, shown) and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                shown += os.read(self.terminal, 65536).decode(errors="replace")
        return shown


@pytest.fixture
def flagged(monkeypatch, capsys):
    """flagged("install=bash"): what -sc with these words gives of a command: exit code, output, errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["train", "-sc", *words])
        code = 0
        try:
            main(lambda config: pytest.fail("the job ran"), "train")
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_bash_completes_what_is_typed(flagged):
    code, script, err = flagged("install=bash")
    assert code == 0 and script.startswith("_archlab()") and err == ""
    bash = Bash()
    try:
        bash.type(f"{script}\necho rea''dy\n", until="\nready")
        for typed, shown in (
            ("model/position=al\t", "model/position=alibi $"),  # what stands before the = isn't written twice
            ("model.attention.n_kv\t", r"model.attention.n_kv_heads=$"),  # and no space follows what goes on
            (f"data.path={ROOT}/pypr\t", r"pyproject.toml"),  # files, where nothing is known
        ):
            assert re.search(shown, said := bash.type(TRAIN + typed, until=shown)), said
            bash.type("\x15", until="")
    finally:
        os.write(bash.terminal, b"\x15exit\n")
        os.close(bash.terminal)
        os.waitpid(bash.pid, 0)


@pytest.mark.parametrize("asked", [[], ["install=fish"]])
def test_only_bash_is_told(asked, flagged):
    code, out, err = flagged(*asked)
    assert code == 1 and out == "" and err.startswith("error: -sc: found") and "install=bash" in err
