"""What the documents say is so: the commands of the tutorial run and print what it shows, the
program of the README is the example, and no link leads nowhere."""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import torch_isa
from muonium_command import BUILD, MUONIUM, run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*SOURCE.glob("*.md"), *(SOURCE / "docs").glob("*.md"), *(SOURCE / "examples").rglob("*.md")]
)


def kernels_here():
    """The instruction sets that this CPU and this build can be told to use."""
    found = []
    for name in ("portable", "avx2", "avx512"):
        done = subprocess.run([str(MUONIUM), "info"], capture_output=True,
                              env={**os.environ, "MUONIUM_CPU": name})
        if done.returncode == 0:
            found.append(name)
    return found


KERNELS = kernels_here()


def blocks_of(path):
    """The fenced blocks: (language, text)."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)


def words_agree(shown, printed):
    """Equal words; numbers may differ as the rounding of another instruction set does. Teams and
    scratch memory depend on the machine."""
    a, b = (re.sub(r"^on \d+ threads?: \d+ team.*$", "teams", text, flags=re.M).split()
            for text in (shown, printed))
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        try:
            if abs(float(x) - float(y)) > 0.02 * abs(float(x)) + 2e-4:
                return False
        except ValueError:
            if x != y:
                return False
    return True


def run_script(script, place, environment):
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=place, env=environment, capture_output=True, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def installed(home):
    """Install what was built, as the first command of the tutorial would."""
    done = subprocess.run(
        ["cmake", "--install", str(BUILD), "--prefix", str(home / ".local")],
        capture_output=True, text=True, timeout=120,
        env={k: v for k, v in os.environ.items() if k not in ("DESTDIR", "LD_PRELOAD")},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="programs built here are not instrumented")
def test_tutorial(tmp_path):
    blocks = blocks_of(SOURCE / "docs/tutorial.md")
    assert {language for language, _ in blocks} == {"sh", "text", "c"}
    program = "".join(text for language, text in blocks if language == "c")
    (tmp_path / "glyphs.c").write_text(program)

    install, *blocks = blocks
    assert install == ("sh", 'make install PREFIX="$HOME/.local"\n')
    installed(tmp_path)
    # Libraries may be installed under lib/ or lib/<machine>: the page says lib.
    library = next((tmp_path / ".local").rglob("libmuonium.so")).parent
    if library.name != "lib":
        (tmp_path / ".local/lib/pkgconfig").symlink_to(library / "pkgconfig")

    # One shell runs all commands, with a mark before each block.
    script, shown = "", []
    for language, text in blocks:
        if language == "sh":
            script += f"echo @@@ {len(shown)}\n{text}"
            shown.append("")
        elif language == "text":
            shown[-1] = text
    environment = {**os.environ, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    for name in ("PKG_CONFIG_PATH", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    printed = re.split(r"^@@@ \d+\n", run_script(script, tmp_path, environment), flags=re.M)[1:]
    assert len(printed) == len(shown) > 5
    for expected, found in zip(shown, printed):
        assert words_agree(expected, found), f"shown:\n{expected}\nprinted:\n{found}"


FIGURES = re.findall(
    r"^    muonium (coeffs .*)--plot docs/(\S+)$", (SOURCE / "docs/recipes.md").read_text(), re.M
)


@pytest.mark.parametrize("arguments, name", FIGURES, ids=[name for _, name in FIGURES])
def test_figures_are_what_the_commands_beside_them_draw(tmp_path, arguments, name):
    run(*arguments.split(), "--plot", tmp_path / name)
    assert (tmp_path / name).read_text() == (SOURCE / "docs" / name).read_text()


def test_program_of_the_readme(tmp_path):
    blocks = blocks_of(SOURCE / "README.md")
    example = (SOURCE / "examples/smallest.c").read_text()
    assert ("c", example) in blocks
    session = next(text for language, text in blocks if "./smallest\n" in text)
    command, _, shown = session.partition("\n")
    assert command.startswith("$ cc smallest.c")
    for kernels in KERNELS:
        printed = subprocess.run(
            [str(BUILD / "examples/smallest")], capture_output=True, text=True, timeout=60,
            env={**os.environ, "MUONIUM_CPU": kernels},
        ).stdout
        assert printed == shown, kernels


def run_torch(*arguments):
    """What a Python program that uses PyTorch prints."""
    torch_isa.prepare()
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python"),
                   "MUONIUM_LIBRARY": str(BUILD / "libmuonium.so")}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                          env=environment, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="PyTorch is not instrumented")
def test_python_of_the_readme():
    (program,) = [text for language, text in blocks_of(SOURCE / "README.md") if language == "python"]
    printed = run_torch("-c", program)
    assert float(re.fullmatch(r"loss (\S+)\n", printed).group(1)) < 0.5  # 1.1 at the start


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="PyTorch is not instrumented")
def test_the_torch_example_trains():
    printed = run_torch(SOURCE / "examples/torch/train.py", "--steps", "4", "--momentum-steps", "3")
    found = re.fullmatch(r"adamw .*: loss (\S+) after 4 .*\nmuonium .*: loss (\S+) after 4 .*\n.*\n", printed)
    assert found, printed
    assert all(float(loss) < 3.5 for loss in found.groups())  # log(75) = 4.3 at the start


# ---- figures in the text ----


def test_what_orthogonalize_is_said_to_do(tmp_path):
    """Singular values between 0.86 and 1.14 by default; the polar factor with 8 steps, to 1.4e-6;
    and that of a matrix with small singular values with 12 and lower = 1e-5."""
    np = pytest.importorskip("numpy")
    for name in ("README.md", "include/muonium.h", "python/muonium/_functions.py"):
        text = re.sub(r"[\s*]+", " ", (SOURCE / name).read_text("utf-8"))
        for figure in ("0.86 and 1.14", "1.4e-6", "1e-5", "7 %"):
            assert figure in text, (name, figure)
    random = np.random.default_rng(0)
    for rows, cols, default, closest in ((256, 512, [], ["--steps=8"]),
                                         (256, 256, None, ["--steps=12", "--lower=1e-5"])):
        x = random.standard_normal((rows, cols)).astype("f4")
        np.save(tmp_path / "x.npy", x)
        u, _, v = np.linalg.svd(x.astype("f8"), full_matrices=False)
        for kernels in KERNELS:
            def distance(*options):
                run("orthogonalize", tmp_path / "x.npy", tmp_path / "y.npy", *options,
                    env={**os.environ, "MUONIUM_CPU": kernels})
                y = np.load(tmp_path / "y.npy").astype("f8")
                values = np.linalg.svd(y, compute_uv=False)
                return np.linalg.norm(y - u @ v) / np.sqrt(rows), values.min(), values.max()
            if default is not None:
                off, low, high = distance(*default)
                assert 0.86 <= low and high <= 1.14 and round(off, 2) == 0.07
            assert distance(*closest)[0] < 5e-6


def test_figures_of_the_benchmark_are_in_the_text():
    """README and docs/performance.md have the figures of the data in bench/results; and the pages
    beside the data are of the same runs."""
    subprocess.run([SOURCE / "tools/refresh-figures", "--check"], check=True)
    for name in ("README.md", "docs/performance.md"):
        (marks,) = re.findall(r"<!-- figures of (.*?) -->", (SOURCE / name).read_text("utf-8"))
        for result in re.findall(r"=([^,]+)", marks):
            data = json.loads((SOURCE / result).read_text())["all_threads"]
            page = (SOURCE / result).with_suffix(".md").read_text("utf-8")
            assert f"Muonium {data['version']}, kernel {data['kernel']}" in page
            (row,) = [row for row in data["results"] if (row["name"], row["m"], row["n"]) == (
                "orthogonalize", 768, 3072)]
            assert f"\n| 768×3072 | {1e3 * row['seconds']:.3g} |" in page


def header_version():
    return re.search(r'MUONIUM_VERSION_STRING "([\d.]+)"', (SOURCE / "include/muonium.h").read_text())[1]


def test_results_that_are_cited_are_of_this_version():
    for name in ("README.md", "docs/performance.md"):
        cited = re.findall(r"\]\((?:\.\./)?(bench/results/\S+\.md)\)", (SOURCE / name).read_text("utf-8"))
        assert cited, name
        for page in cited:
            assert f"Muonium {header_version()}" in (SOURCE / page).read_text("utf-8"), (name, page)


def demo_losses():
    """What the demo ended with: examples/gpt/demo.json is its output, and the command that makes
    it is in examples/gpt/README.md."""
    result = json.loads((SOURCE / "examples/gpt/demo.json").read_text())
    return {run["optimizer"]: run["final_validation_loss"] for run in result["runs"]}


def test_figures_of_the_demo_agree():
    losses = demo_losses()
    readme = (SOURCE / "examples/gpt/README.md").read_text("utf-8")
    assert "muonium demo --plot docs/demo.svg --json >examples/gpt/demo.json" in readme
    said = re.search(r"AdamW (\S+) at \S+, Muon (\S+) at", readme)
    labels = re.findall(r">([12]\.\d\d)<", (SOURCE / "docs/demo.svg").read_text("utf-8"))
    for found in (said.groups(), labels):
        assert list(found) == [f"{losses[name]:.2f}" for name in ("AdamW", "Muon")]
    # The sweep may be of another version: a unit of the second decimal.
    with open(SOURCE / "examples/gpt/sweep.csv", newline="") as file:
        for row in csv.DictReader(file):
            name = {"adamw": "AdamW", "muonium": "Muon"}.get(row["optimizer"])
            if name and (row["lr"], row["momentum"], row["seed"]) == (
                    {"AdamW": "0.003", "Muon": "0.03"}[name], "0.8", "1"):
                assert float(row["final_validation_loss"]) == pytest.approx(losses[name], abs=0.01)
    low, high = re.search(r"loss between (\S+) and (\S+) after 200 steps",
                          (SOURCE / "docs/direct.md").read_text("utf-8")).groups()
    assert float(low) <= losses["Muon"] <= float(high)


def test_figures_of_the_comparison_agree():
    readme = (SOURCE / "examples/gpt/README.md").read_text("utf-8")
    runs = {run["optimizer"]: run for run in json.loads((SOURCE / "examples/gpt/compare.json").read_text())["runs"]}
    whole = 200 * runs["AdamW"]["seconds_per_step"]
    for name, run in runs.items():
        cells = re.search(rf"^\| `?{ {'Muon': 'muonium'}.get(name, name) }`? \| (\S+) \| (\S+) \| (\S+)", readme, re.M).groups()
        reached = run["steps_to_adamw_final_loss"]
        assert cells == (f"{run['final_validation_loss']:.2f}", str(reached or "never"),
                         f"{100 * run['seconds_to_adamw_final_loss'] / whole:.0f}" if reached else "–"), name
    labels = re.findall(r">([12]\.\d\d)<", (SOURCE / "docs/demo-recipes.svg").read_text("utf-8"))
    assert labels == [f"{run['final_validation_loss']:.2f}" for run in runs.values()]


def test_precisions_train_alike():
    """The page's means; none is off those of f32 by as much as seeds are."""
    readme = (SOURCE / "examples/gpt/README.md").read_text("utf-8")
    losses = {}
    with open(SOURCE / "examples/gpt/precisions.csv", newline="") as file:
        for row in csv.DictReader(file):
            losses.setdefault(row["precision"], []).append(float(row["final_validation_loss"]))
    assert set(losses) == {"f32", "fixed23", "fixed15", "bf16"}
    means = {name: sum(values) / len(values) for name, values in losses.items()}
    said = re.search(r"is (\S+) in f32, (\S+) in `fixed23`, (\S+) in `fixed15` and\s(\S+) in bf16", readme).groups()
    assert list(said) == [f"{means[name]:.3f}" for name in ("f32", "fixed23", "fixed15", "bf16")]
    noise = max(max(values) - min(values) for values in losses.values())
    assert all(len(values) == 3 and abs(means[name] - means["f32"]) < noise for name, values in losses.items())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_links_lead_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            place, _, section = target.partition("#")
            assert (path.parent / place).exists(), target
            if section and place.endswith(".md"):
                titles = re.findall(r"^#+ (.*)$", (path.parent / place).read_text("utf-8"), re.M)
                anchors = [re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles]
                assert section in anchors, target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_that_are_named_exist(path):
    rooms = "src|tests|docs|examples|tools|cli|bench|python|include|fuzz|cmake"
    for name in re.findall(rf"`((?:{rooms})/[\w./-]+\.(?:c|h|py|md|csv|svg|cmake))`", path.read_text("utf-8")):
        assert (SOURCE / name).exists(), name


def test_every_version_is_that_of_the_header():
    version = header_version()
    interface = version.rpartition(".")[0]
    for path, pattern in (("CITATION.cff", f"^version: {version}$"),
                          ("python/muonium/_library.py", f'^HEADER_VERSION = "{version}"'),
                          ("debian/changelog", rf"\Amuonium \({version}\)"),
                          ("debian/control", f"^Package: libmuonium{interface}$")):
        assert re.search(pattern, (SOURCE / path).read_text(), re.M), f"{path} is not of {version}"


def test_the_changelog_begins_with_this_version():
    """With the day of the release, which CITATION.cff has too."""
    first = re.search(r"^## (.*)$", (SOURCE / "CHANGELOG.md").read_text("utf-8"), re.M)[1]
    version, day = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", first).groups()
    assert version == header_version()
    assert f"\ndate-released: {day}\n" in (SOURCE / "CITATION.cff").read_text()
