"""`muonium bench --cores`: the shape of its answer, and what holds on any machine."""

import json

from muonium_command import run


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


def test_refusals():
    for cores in ("0", "8,", "1025", "eight"):
        _, error = run("bench", "--cores", cores, code=1)
        assert "cores is no list" in error
