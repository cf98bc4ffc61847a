"""The page of `make bench`, from a run too short for its figures to mean anything."""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from muonium_command import MUONIUM

REPORT = Path(__file__).resolve().parent.parent / "bench" / "report.py"


def test_the_page_has_every_figure(tmp_path):
    done = subprocess.run(
        [sys.executable, REPORT, MUONIUM, "--quick", "--seconds=0", "--output", tmp_path / "new",
         "--name", "here"], check=True, capture_output=True, text=True)
    page = (tmp_path / "new" / "here.md").read_text()
    assert page in done.stdout
    found = json.loads((tmp_path / "new" / "here.json").read_text())
    sizes = [row["m"] for row in found["products"]["results"] if row["name"] == "gram"]
    assert sizes == [64, 128, 256]
    for m in sizes:
        row = next(line for line in page.splitlines() if line.startswith(f"| {m} |"))
        assert all(0 < float(cell.strip(" %")) for cell in row.split("|")[2:5])
        assert f"| {m}×{m} |" in page
    forms = {row["name"].strip() for row in found["all_threads"]["results"]}
    assert {"standard", "gram", "direct P11", "direct P12", "orthogonalize"} <= forms
    comparisons = found["all_threads"]["comparisons"]
    assert len(comparisons) >= 3 and all(c["times_as_fast"] > 0 for c in comparisons)
    picture = ElementTree.parse(tmp_path / "new" / "here.svg").getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) >= 3
    assert all(len(line.get("points").split()) == 3 for line in lines)


def test_a_failing_command_is_named(tmp_path):
    broken = tmp_path / "muonium"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    os.chmod(broken, 0o755)
    done = subprocess.run([sys.executable, REPORT, broken, "--output", tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "out of order" in done.stderr
    assert list(tmp_path.iterdir()) == [broken]
