"""One of the processes of a run: it takes what it does from the run folder, and from no command line."""

from __future__ import annotations

import json
import sys
import traceback

from builder.errors import ArchlabError

from . import together
from .train import Stopped, take_part


def main() -> int:
    """Takes part in the run that the arguments name; 0 too for a run that was asked to stop, and has."""
    together.watch_the_parent()
    try:
        take_part(**json.loads(sys.argv[1]))
    except Stopped:
        return 0  # summary.json says so
    except ArchlabError as error:
        print(f"error: rank {together.rank()}: {error}", file=sys.stderr)
        return 1
    except BaseException:
        print(f"rank {together.rank()}:\n{traceback.format_exc()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
