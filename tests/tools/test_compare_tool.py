"""tools/compare and its environment: what it does without PyPI, and with packages whose tests fail."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def compare(cache, **environment):
    return subprocess.run([ROOT / "tools/compare", cache], text=True, capture_output=True,
                          env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment})


def test_without_pypi_it_is_skipped_and_says_so(tmp_path):
    pytest.importorskip("ensurepip", reason="this Python makes no virtual environments")
    done = compare(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_FIND_LINKS="",
                   PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("Installing ") and "6 GB" in said[0]
    assert said[-1].startswith("SKIPPED: PyPI cannot be reached")


@pytest.mark.parametrize("status", [0, 1])
def test_its_status_is_that_of_the_tests(tmp_path, status):
    """The packages are there; the Python is one that only says how the tests went."""
    python = tmp_path / "muonium/compare/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$1" = - ] && exit 0\necho "$@"\nexit {status}\n')
    python.chmod(0o755)
    done = compare(tmp_path)
    assert done.returncode == status
    assert "pytest" in done.stdout and done.stdout.split()[-1] == "tests/compare"
