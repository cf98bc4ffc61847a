"""`muonium bench --cores`: the shape of its answer, and what holds on any machine."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from muonium_command import run

CHART = Path(__file__).resolve().parents[2] / "bench" / "cores_chart.py"


def test_predictions():
    cores = (1, 2, 64)
    found = json.loads(run("bench", "--quick", "--cores", ",".join(map(str, cores)), "--json")[0])
    assert list(found) == ["runs", "machine", "twice_the_threads", "steps"]
    assert [row["threads"] for row in found["runs"]] == [2, 4, 8, 16, 32, 64]
    machine = found["machine"]
    assert all(row["oversubscribed"] == (row["threads"] > machine["cpus"]) for row in found["runs"])
    assert all(row["microseconds"] > 0 and row["from_sleep"] > 0 for row in found["runs"])
    assert 0 < machine["handover"] <= machine["wakeup"]
    assert 0 < machine["per_worker"] <= machine["per_sleeper"]
    assert machine["slowdown_of_two"] >= 1 and all(rate > 0 for rate in machine["copy"])

    crowd, = found["twice_the_threads"]
    assert crowd["model"] == "1024 x 1024" and crowd["threads"] == machine["cpus"]
    assert crowd["seconds"] > 0 and crowd["ratio_of_twice"] > 0

    steps = found["steps"]
    assert [(row["model"], row["cores"]) for row in steps] == [
        (model, count) for model in ("1024 x 1024", "GPT-2 124M") for count in cores]
    for row in steps:
        assert row["seconds"] > 0 and 0 < row["efficiency"] <= 1
        assert row["limit"] in ("nothing", "span", "barriers", "bandwidth", "smaller tasks")
        assert all(0 <= row[part] <= 1 for part in ("span", "barriers", "bandwidth"))
        assert 1 <= row["teams"] and 1 <= row["width"] <= row["cores"] and row["scratch_bytes"] > 0
        # Only whole models on cores that are here are measured too.
        real = row["model"] == "1024 x 1024" and row["cores"] <= min(2, machine["cpus"])
        assert ("measured" in row) == real
        if real:
            assert row["validated"] == (abs(row["difference"]) < 0.10)
    by_cores = {row["cores"]: row["seconds"] for row in steps if row["model"] == "GPT-2 124M"}
    assert by_cores[1] > by_cores[2] > by_cores[64] > by_cores[1] / 64 / 1.5


def test_page_and_chart(tmp_path):
    def row(model, cores, efficiency, **more):
        return {"model": model, "cores": cores, "seconds": 1 / cores / efficiency, "efficiency": efficiency,
                "limit": "span", **more}
    found = {"machine": {"handover": 5e-7, "per_worker": 6e-8, "wakeup": 3e-5, "per_sleeper": 2e-6},
             "twice_the_threads": [{"model": "A & B", "threads": 2, "seconds": 1, "ratio_of_twice": 1.05}],
             "steps": [row("GPT-2 124M", 1, 1, measured=1.1, difference=-0.09, validated=True),
                       row("GPT-2 124M", 8, 0.96), row("GPT-2 124M", 64, 0.79), row("A & B", 8, 0.5)]}
    (tmp_path / "found.json").write_text(json.dumps(found))
    subprocess.run([sys.executable, CHART, tmp_path / "found.json", "--name", "here", "--machine", "<this>",
                    "--save", tmp_path], check=True)
    page = (tmp_path / "here.md").read_text()
    assert "| GPT-2 124M | 8 | 95 % | 96 % | span |" in page
    assert "| GPT-2 124M | 64 | 80 % | 79 %, missed | span |" in page
    assert "| GPT-2 124M | 1 | 1.1e+03 ms | -9.0 % | yes |" in page
    assert json.loads((tmp_path / "here.json").read_text()) == found
    picture = ElementTree.parse(tmp_path / "here.svg").getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.get("points").split()) for line in lines] == [3, 1]


def test_refusals():
    for cores in ("0", "8,", "1025", "eight"):
        _, error = run("bench", "--cores", cores, code=1)
        assert "cores is no list" in error
