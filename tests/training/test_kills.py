"""kill -9 at any moment: resumed each time, the run ends as the one left alone, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import builder.experiments.train as training
from builder import check
from builder.experiments.folder import RunFolder
from builder.experiments.kept import by_step
from builder.experiments.train import resume, train
from builder.training.callbacks import routing
from builder.training.module import Training
from builder.training.seal import Sealing
from tests.tiny_run import MOE, overrides, spec_of

from .same_run import assert_same_run

ROOT = Path(__file__).parents[2]
KILLS = 20
STEPS = 60
RUN = [
    *MOE,
    "model.n_layers=2",
    "model.pattern=[attention+ffn,attention+moe]",
    "model.moe.balance.bias_speed=0.01",
    "model.embedding.dropout=0.2",
    f"trainer.max_steps={STEPS}",
    "trainer.val_check_interval=20",
    "callbacks.last.every_n_steps=2",
    "output.name=run",
]
CHANGES = {"os.rename", "os.remove", "os.symlink", "os.mkdir", "os.chmod"}

Plan = Callable[[], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run that nothing disturbs; in it and in those that follow, the heat map takes no time."""
    home = Home(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "draw", lambda loads, title, file: file.write(b"drawn"))
        train(home.spec, Console(quiet=True))  # in this process: what it imports on the way, no fork imports again
        yield home.run


class Home:
    """Where one run is trained, by processes that begin it or go on with it."""

    def __init__(self, folder: Path):
        self.folder, self.spec, self.run = folder, spec_of(folder, *RUN), folder / "out/main/run"
        self.report = check(self.spec, probes=False)

    def start(self, plan: Plan = lambda: None) -> int:
        """A process of its own that trains on, after `plan`; gives its number."""
        child = os.fork()  # with everything imported: a start takes a fraction of a second
        if child:
            return child
        code = 1
        try:
            with (self.folder / "said.txt").open("a") as said:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
            training.check = lambda *_, **__: self.report  # which takes longer than the kills would leave it
            plan()
            begun = (self.run / "config.yaml").is_file()
            resume(self.run, Console()) if begun else train(self.spec, Console())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    @property
    def step(self) -> int:
        """The newest step that is saved."""
        return max((int(path.stem[5:]) for path in by_step(RunFolder(self.run))), default=0)


def ended(child: int, home: Home) -> bool:
    """Waits; whether the process was killed, which is the only way to fail here."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), (home.folder / "said.txt").read_text()
    return code != 0


def finish(home: Home, whole: Path) -> None:
    """The run goes on undisturbed, and has become the whole one."""
    assert not ended(home.start(), home)
    assert_same_run(home.run, whole)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_twenty_kills_by_the_clock(whole, tmp_path):
    """Every other one while the process starts up, the others while it trains or validates."""
    home, dice, fell = Home(tmp_path), random.Random(1), []
    startup = 0.2
    for number in range(KILLS):
        read, write = os.pipe()
        before, began = home.step, time.monotonic()
        child = home.start(partial(telling, write))
        os.close(write)  # a process that fails is heard by its silence
        if number % 2:
            os.read(read, 1)  # it trains
            startup = time.monotonic() - began
            for _ in range(dice.randint(1, 2 * (STEPS - before) // ((KILLS - number) // 2 + 1) + 1)):
                os.read(read, 1)  # a step is done
            time.sleep(dice.uniform(0, 0.02))
        else:
            time.sleep(dice.uniform(0, startup))
        os.kill(child, signal.SIGKILL)
        assert ended(child, home)
        os.close(read)
        fell.append(home.step)
    assert fell == sorted(fell) and fell[-1] > 10, "it never gets anywhere"
    finish(home, whole)


def telling(pipe: int) -> None:
    """Has a process say when training starts and each step ends, and wait at the last step for its end."""
    begin, end = Training.on_train_start, Training.on_train_batch_end

    def on_train_start(self):
        os.write(pipe, b"!")
        begin(self)

    def on_train_batch_end(self, *args):
        end(self, *args)
        os.write(pipe, b"." if self.global_step < STEPS else b"." * STEPS)
        time.sleep(60 if self.global_step == STEPS else 0)

    Training.on_train_start, Training.on_train_batch_end = on_train_start, on_train_batch_end


def test_twenty_kills_between_two_changes_on_the_disk(whole, tmp_path):
    """Before a file is opened for writing, moved, removed or linked: of those of a whole run, any may be the last."""
    home, dice, kills = Home(tmp_path), random.Random(2), []
    while len(kills) < KILLS:
        at = dice.randint(1, 45)
        if not ended(home.start(partial(dying, at, home.run)), home):
            break
        kills.append(at)
    assert len(kills) > KILLS / 2
    finish(home, whole)


def dying(at: int, run: Path) -> None:
    """Has a process kill itself before its change number `at` below the folder `run`."""
    left = at

    def hear(event: str, args: tuple) -> None:
        nonlocal left
        writes = event in CHANGES or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and any(str(run) in str(arg) for arg in args[:2]):
            left -= 1
            if not left:
                kill()

    sys.addaudithook(hear)


def test_killed_in_the_middle_of_a_checkpoint(whole, tmp_path):
    home, step = Home(tmp_path), 44

    def plan():
        write = Sealing.write

        def half(self, data):
            if self.size > 20_000 and home.step == step - 2:
                self._file.flush()
                kill()
            return write(self, data)

        Sealing.write = half

    assert ended(home.start(plan), home)
    (draft,) = (home.run / "checkpoints").glob(".*.part")
    assert draft.stat().st_size > 20_000 and home.step == step - 2
    finish(home, whole)


@pytest.mark.slow
def test_twenty_kills_of_the_command(whole, tmp_path):
    """As a user has it: a new interpreter each time, and no part of it prepared for its end."""
    home, dice, fell = Home(tmp_path), random.Random(3), []
    for left in range(KILLS, 0, -1):
        target = min(home.step + dice.randint(0, 2 * (STEPS - home.step) // left), STEPS - 4)
        child = launched(home)
        if dice.random() < 0.3:
            time.sleep(dice.uniform(0, 10))
        else:
            while home.step < target and child.poll() is None:
                time.sleep(0.002)
            time.sleep(dice.uniform(0, 0.1))
        child.kill()
        assert child.wait() == -signal.SIGKILL, (tmp_path / "said.txt").read_text()
        fell.append(home.step)
    print("kills fell after the saved steps", fell)
    assert launched(home).wait() == 0, (tmp_path / "said.txt").read_text()
    assert_same_run(home.run, whole)


def launched(home: Home) -> subprocess.Popen:
    """A process that trains on, by the command that a user would type."""
    begun = (home.run / "config.yaml").is_file()
    words = [f"resume={home.run}"] if begun else overrides(home.folder, *RUN)
    with (home.folder / "said.txt").open("a") as said:
        return subprocess.Popen([sys.executable, "-m", "recipes.train", *words], cwd=ROOT, stdout=said, stderr=said)
