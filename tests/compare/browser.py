"""A real browser without a window: what stands on a page after its scripts ran, and what they complained of."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND"


@dataclass(frozen=True)
class Seen:
    """The page as it stands, and every line of its console: warnings and errors."""

    dom: str
    console: list[str]

    def count(self, pattern: str) -> int:
        """How often a pattern stands in the page, its scripts left out."""
        return len(re.findall(pattern, re.sub(r"<script.*?</script>", "", self.dom, flags=re.S)))


def look(page: Path, profile: Path) -> Seen:
    """Opens a page, offline, and waits until its scripts are done; skips the test where there is no browser."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no browser is installed; apt-get install chromium brings one")
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
    ]
    command = [program, *flags, _NO_NETWORK, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return Seen(run.stdout, [line for line in run.stderr.splitlines() if ":CONSOLE" in line])
