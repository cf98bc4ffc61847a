"""The commands of docs/checkpoints.md run and print what it shows."""

import os
import re

from muonium_command import BUILD
from test_docs import SOURCE, blocks_of, run_script


def test_every_command(tmp_path):
    script, shown = "", []
    for language, text in blocks_of(SOURCE / "docs/checkpoints.md"):
        if language == "sh":
            script += f"echo @@@ {len(shown)}\n{text}"
            shown.append("")
        else:
            assert language == "text"
            shown[-1] = text
    environment = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    printed = re.split(r"^@@@ \d+\n", run_script(script, tmp_path, environment), flags=re.M)[1:]
    assert len(printed) == len(shown) >= 6
    for expected, found in zip(shown, printed):
        assert [line.rstrip() for line in found.splitlines()] == expected.splitlines()
