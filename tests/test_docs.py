"""What the documents say is so: the commands of the tutorial run and print what it shows, the
program of the README is the example, and no link leads nowhere."""

import os
import pathlib
import re
import subprocess

import pytest

from muonium_command import BUILD, run

SOURCE = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    [*SOURCE.glob("*.md"), *(SOURCE / "docs").glob("*.md"), *(SOURCE / "examples").rglob("*.md")]
)


def blocks_of(path):
    """The fenced blocks: (language, text)."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)


def words_agree(shown, printed):
    """Equal words; numbers may differ as the rounding of another instruction set does."""
    a, b = shown.split(), printed.split()
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
    (tmp_path / "spiral.c").write_text(program)

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
    printed = subprocess.run(
        [str(BUILD / "examples/smallest")], capture_output=True, text=True, timeout=60
    ).stdout
    assert words_agree(shown, printed)


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
