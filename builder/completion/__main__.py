"""What the shell starts at each press of TAB: nothing of torch is imported on the way."""

import os

from .shell import suggest

if __name__ == "__main__":
    line = os.environ.get("COMP_LINE", "")
    for word in suggest(line[: int(os.environ.get("COMP_POINT") or len(line))]):
        print(word)
