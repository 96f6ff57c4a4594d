"""The command line of every job: Hydra's grammar in, one clear message and exit code 1 when something is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from .compose import CONF, FAULTS, adapt, compose, plain, prepare, reason, stated
from .errors import ArchlabError

STOPPED = 130
"""The exit code of what Ctrl-C ended."""

EXTRAS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""The extra that brings a launcher of Hydra's."""

_RAISES = "HYDRA_FULL_ERROR"
"""The variable that lets Hydra raise what it would print."""

Job = Callable[[dict[str, Any]], None]


def main(job: Job, config_name: str, whole: tuple[str, ...] = ()) -> None:
    """Runs `job` on the config that the command line describes; flags (-m, --help, --cfg ...) are Hydra's own.

    `whole` are keys that name a folder with a config of its own. Beside one of them no default is laid over that: the
    job is given what else was typed, under `overrides`.
    """
    arguments = sys.argv[1:]
    try:
        if not {"-sc", "--shell-completion"}.isdisjoint(arguments):
            from .completion import answer

            answer(arguments)
        elif any(argument.startswith("-") for argument in arguments):
            sys.exit(_hydra(job, config_name))
        else:
            job(_described(arguments, config_name, whole))
    except ArchlabError as error:
        _report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(STOPPED)


def typed() -> list[str]:
    """The overrides on the command line, without Hydra's flags."""
    return [word for word in sys.argv[1:] if word.startswith("~") or ("=" in word and not word.startswith("-"))]


def _described(arguments: list[str], config_name: str, whole: tuple[str, ...]) -> dict[str, Any]:
    """The config, or the job's own keys of it and what is to be laid over the config of a folder."""
    if not any(word.startswith(f"{key}=") and word != f"{key}=null" for word in arguments for key in whole):
        return compose(arguments, config_name)
    own = [word for word in arguments if word.partition("=")[0] in stated(config_name)]
    return compose(own, config_name) | {"overrides": [word for word in arguments if word not in own]}


def _hydra(job: Job, config_name: str) -> int:
    """Hands over to Hydra; in a sweep a job that fails is reported, the rest run, and the exit code is 1."""
    import hydra

    failed: list[ArchlabError] = []

    def run(config: Any) -> None:
        try:
            job(_placed(plain(config)))
        except ArchlabError as error:
            _report(error, _job_name())
            failed.append(error)
            if error.exit_code == STOPPED:  # Ctrl-C ends the sweep, not one job of it
                sys.exit(STOPPED)

    prepare()
    overrides = typed()
    _refuse_missing_launcher(overrides)
    flags = [word for word in sys.argv[1:] if word not in overrides]
    sys.argv[1:] = [*flags, *adapt(overrides)]  # argparse wants the overrides in one row
    with _raised(overrides):
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(run)()
    return 1 if failed else 0


@contextmanager
def _raised(overrides: list[str]) -> Iterator[None]:
    """What Hydra would print of its own errors, and of files that can't be read, is an ArchlabError with the reason."""
    before = os.environ.get(_RAISES)
    os.environ[_RAISES] = "1"
    try:
        yield
    except FAULTS as error:
        raise ArchlabError(reason(error, overrides)) from None
    finally:
        os.environ.pop(_RAISES)
        if before is not None:
            os.environ[_RAISES] = before


def _refuse_missing_launcher(overrides: list[str]) -> None:
    """Raises ArchlabError for a launcher whose plugin isn't installed."""
    for word in overrides:
        key, _, value = word.partition("=")
        plugin = f"hydra_plugins.hydra_{value.partition('_')[0]}_launcher"
        if key == "hydra/launcher" and value in EXTRAS and find_spec(plugin) is None:
            raise ArchlabError(f"{word}: its plugin isn't installed; write: pip install 'archlab[{EXTRAS[value]}]'")


def _placed(config: dict[str, Any]) -> dict[str, Any]:
    """In a sweep, the config with its run placed in the job's folder: <root>/<experiment>/<sweep>/<job>."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    running = HydraConfig.get()
    if running.mode == RunMode.MULTIRUN and "output" in config:
        sweep = running.sweep.dir.rpartition("/")[2]
        config["output"]["name"] = f"{sweep}/{running.job.num}"
    return config


def _job_name() -> str:
    """Which job of a sweep this is, and what sets it apart; empty outside of one."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    running = HydraConfig.get()
    overrides = " ".join(word.lstrip("+") for word in running.overrides.task)
    return f"job {running.job.num} ({overrides}): " if running.mode == RunMode.MULTIRUN else ""


def _report(error: ArchlabError, job: str = "") -> None:
    print(f"error: {job}{error}", file=sys.stderr)
