"""Runs the muonium command for the tests."""

import os
import pathlib
import subprocess

BUILD = pathlib.Path(
    os.environ.get("MUONIUM_BUILD_DIR", pathlib.Path(__file__).resolve().parents[2] / "build")
)
MUONIUM = BUILD / "muonium"


def run(*arguments, code=0, **keywords):
    """Run the command, check its exit code, and return (stdout, stderr)."""
    keywords.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run(
        [str(MUONIUM), *map(str, arguments)], stderr=subprocess.PIPE, timeout=120, **keywords
    )
    out = (done.stdout or b"").decode()
    error = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"exit {done.returncode}\n{out}\n{error}"
    if code == 0:
        assert error == ""
    else:
        assert error.startswith("muonium")
    return out, error


def environment(**variables):
    return {**os.environ, **variables}
