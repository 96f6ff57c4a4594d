"""A rank that lives on, but for one that is killed, ends badly or ends well, as the arguments say."""

import json
import os
import signal
import sys
import time
from pathlib import Path

told = json.loads(sys.argv[1])
if os.environ["RANK"] == "1":
    if told["how"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(3 if told["how"] == "failed" else 0)
if told["how"] == "well":
    sys.exit(0)
Path(told["file"]).write_text(str(os.getpid()))
time.sleep(300)
