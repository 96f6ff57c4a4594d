"""Every command and every piece of code in the README runs and does what the text around it says."""

from __future__ import annotations

import re
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from builder import registry
from builder.cli import main
from builder.training.callbacks.interrupt import Interrupt
from recipes import bench, check, compare, convert, evaluate, generate, sweep_file, sync, tokenize, train

README = Path(__file__).resolve().parent.parent / "README.md"
MODULES = (train, check, generate, evaluate, compare, convert, bench, tokenize, sync, sweep_file)
NAMES = {module.__name__.rpartition(".")[2]: module for module in MODULES}
COMMANDS = {name: getattr(module, "command", partial(main, module.job, name)) for name, module in NAMES.items()}
QUICK = ["debug=quick", "trainer.max_steps=4", "trainer.val_check_interval=2", "callbacks.last.every_n_steps=2"]
QUICK += ["trainer.limit_val_batches=1", "output.experiment=main", "logger=none", "batch.sequences=2"]
BRIEF = ["bench.rounds=1", "bench.seconds=0.01", "bench.new_tokens=2", "batch.sequences=1"]
NOTES = "A small text that is long enough to be cut into windows of thirty-two tokens. " * 60


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order; "" for those without one."""
    pieces = re.split(r"^```(\w*)\n", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    fences = list(zip(pieces[1::2], pieces[2::2], strict=True))[::2]  # every second fence closes
    return [text for kind, text in fences if kind == language]


def commands() -> list[tuple[list[str], int]]:
    """The commands of the README, in order, each with the exit code that its line states."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    stated = [re.search(r"# exit code (\d+)", line) for line in lines]
    codes = [int(match[1]) if match else 0 for match in stated]
    return [(shlex.split(line, comments=True), code) for line, code in zip(lines, codes, strict=True)]


def run(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    job = argv[2].removeprefix("recipes.")
    fresh = job == "train" and not any(word.startswith("resume=") for word in argv)
    faster = BRIEF if job == "bench" else quick(argv) if fresh else []
    monkeypatch.setattr(sys, "argv", [job, *argv[3:], *faster])
    try:
        COMMANDS[job]()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def quick(argv: list[str]) -> list[str]:
    """What makes a training command quick, less what the command states itself."""
    keys = {word.partition("=")[0] for word in argv}
    sizes = [] if keys & {"batch.tokens"} or any(key.startswith("model.") for key in keys) else QUICK[:1]
    return [*sizes, *(word for word in QUICK[1:] if not word.startswith("batch.") or "batch.tokens" not in keys)]


def test_the_tour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The five minutes, typed in order in an empty folder; Ctrl-C comes where the text says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text(NOTES, encoding="utf-8")
    stop_once = iter([True])
    monkeypatch.setattr(
        Interrupt, "on_train_start", lambda self, *_: setattr(self, "_asked", next(stop_once, False)), raising=False
    )
    interrupted = [word for argv, _ in commands() for word in argv if word.startswith("resume=")]
    for argv, code in commands():
        first = f"output.name={interrupted[0].rpartition('/')[2]}" in argv
        assert run(argv, monkeypatch) == (130 if first else code), (argv, capsys.readouterr().err)
    assert len(list(tmp_path.glob("outputs/main/*/**/summary.json"))) == 14 + 6, (
        "thirteen runs, an imported one and a sweep of six"
    )


def test_the_component_needs_one_file_and_one_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's example component passes the checklist, in place of the file that a reader would write."""
    code = blocks("python")[0]
    namespace = {"__name__": "readme_component"}
    exec(compile(code, "README.md", "exec", dont_inherit=True), namespace)
    monkeypatch.setattr(sys, "argv", ["check", "model.attention.name=tempered"])
    try:
        main(check.job, "check")
    finally:
        del registry._known["attention", "tempered"]


def test_the_python_path(capsys: pytest.CaptureFixture[str]) -> None:
    """The last piece of code builds the model that it checked."""
    namespace: dict[str, object] = {}
    exec(compile(blocks("python")[1], "README.md", "exec", dont_inherit=True), namespace)
    assert "ready to train" in capsys.readouterr().out
    assert sum(p.numel() for p in namespace["model"].parameters()) > 0  # type: ignore[attr-defined]


def test_the_map_names_what_is_there() -> None:
    """Every folder and file of the map exists."""
    lines = next(block for block in blocks("") if "conf/ " in block).splitlines()
    for line in lines:
        for name in re.findall(r"[\w/]+(?:/|\.py)", line[:30]):
            home = README.parent / ("builder" if line.startswith("  ") else "")
            assert (home / name).exists(), name
