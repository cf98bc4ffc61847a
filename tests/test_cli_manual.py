"""Manual pages and completions: they say what the command says, and shells understand them."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest

from muonium_command import run

SOURCE = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = re.findall(r"^  ([\w-]+)  ", run("--help")[0], re.M)
SHELLS = ["bash", "zsh", "fish"]


def options_of(name):
    """The long options that --help lists, with their placeholders."""
    listed = run(name, "--help")[0].split("\nOptions:\n")[1].split("\nExample:")[0]
    return re.findall(r"^  (?:-\w,|   ) --([\w-]+)(?: (\S+))?", listed, re.M)


def output_of(command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **keywords)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- manual ----


def rendered(page):
    """A page as a reader sees it, on one line; a line may have ended after a hyphen."""
    text = output_of(["mandoc", "-T", "ascii", "-O", "width=200"], input=page)
    return " ".join(re.sub(r"(\w-)\n +", r"\1", re.sub(".\b", "", text)).split())


def check_page(page):
    """Neither of the two programs that read such pages finds a fault with it."""
    linted = subprocess.run(["mandoc", "-T", "lint"], input=page, capture_output=True, text=True)
    harmless = ("missing date", "input text line longer than 80 bytes")
    assert [x for x in linted.stdout.splitlines() if not any(h in x for h in harmless)] == []
    typeset = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-K", "utf8", "-T", "utf8"],
        input=page,
        capture_output=True,
        text=True,
    )
    assert typeset.stderr == ""


def test_there_are_commands():
    assert {"demo", "coeffs", "orthogonalize", "step", "completion", "manual"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_page_of_a_command(name):
    page, _ = run("manual", name)
    check_page(page)
    text = rendered(page)
    help_text, _ = run(name, "--help")
    summary = help_text.splitlines()[0].split(": ", 1)[1]
    assert f"muonium-{name} - {summary}" in text
    for option, placeholder in options_of(name):
        assert f"--{option} {placeholder}".strip() in text
    # Every sentence of the help is there, word by word.
    for part in ("\n\nOptions:\n", "\nExample:\n"):
        assert part.strip() in help_text
    description = help_text.split("\n\n", 2)[2].split("\n\nOptions:")[0]
    assert " ".join(description.split()) in text
    example = help_text.split("\nExample:\n")[1]
    assert " ".join(example.split()) in text


def test_overview_page():
    page, _ = run("manual")
    check_page(page)
    text = rendered(page)
    for name in COMMANDS:
        assert f"muonium-{name}(1)" in text
    assert "MUONIUM_NUM_THREADS" in text and "EXIT STATUS" in text


def test_all_pages_at_once(tmp_path):
    assert run("manual", "--output", tmp_path) == ("", "")
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["muonium.1"] + [f"muonium-{name}.1" for name in COMMANDS]
    )
    assert (tmp_path / "muonium-demo.1").read_text() == run("manual", "demo")[0]
    assert (tmp_path / "muonium.1").read_text() == run("manual")[0]


def test_manual_refusals(tmp_path):
    assert "no command 'demos'" in run("manual", "demos", code=2)[1]
    assert "leave out 'demo'" in run("manual", "demo", "--output", tmp_path, code=2)[1]
    assert "cannot write" in run("manual", "--output", tmp_path / "none", code=1)[1]
    assert "too long" in run("manual", "--output", "d" * 5000, code=1)[1]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("header", sorted((SOURCE / "include").glob("*.h")), ids=lambda p: p.name)
def test_page_of_a_header(tmp_path, header):
    script = SOURCE / "tools/make-manual-3"
    output_of([str(script), str(header), "muonium", "1.2.3", str(tmp_path)])
    page = (tmp_path / f"{header.stem}.3").read_text()
    check_page(page)
    text = rendered(page)
    source = header.read_text()
    declared = set(re.findall(r"^(?:MUONIUM_API.*?[ *]|)(muonium_\w+)\(", source, re.M))
    assert len(declared) > 3
    for function in declared:
        assert f"{function}(" in text
        assert (tmp_path / f"{function}.3").read_text() == f".so man3/{header.stem}.3\n"
    assert "MUONIUM_API" not in text
    # What a comment says reaches the reader, wherever it stands.
    for comment in re.findall(r"^/\* ((?:(?!\*/).|\n)*)\*/\nMUONIUM_API", source, re.M):
        sentence = " ".join(re.sub(r"\n \* ?", " ", comment).split()).split(". ")[0]
        assert sentence in text


# ---- completion ----


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    place = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (place / shell).write_text(run("completion", shell)[0])
    return place


def test_unknown_shell():
    assert "bash, zsh and fish" in run("completion", "tcsh", code=2)[1]


def by_bash(scripts, words, place):
    """What bash offers for the last of the words."""
    quoted = " ".join("'" + word + "'" for word in words)
    program = (
        f"source '{scripts}/bash' && COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n"
        'complete -p muonium >/dev/null && _muonium && printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(output_of(["bash", "-c", program], cwd=place).split())


def by_fish(scripts, words, place):
    line = " ".join(words)
    program = f"source '{scripts}/fish'; complete -C '{line}'"
    home = {**os.environ, "HOME": str(place), "XDG_CONFIG_HOME": str(place), "TERM": "dumb"}
    out = output_of(["fish", "--no-config", "-c", program], cwd=place, env=home)
    return {line.split("\t")[0] for line in out.splitlines()}


COMPLETED = {"bash": by_bash, "fish": by_fish}


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_offered(scripts, tmp_path, shell, name):
    offered = COMPLETED[shell](scripts, ["muonium", name, "--"], tmp_path)
    assert offered == {f"--{option}" for option, _ in options_of(name)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_known_to_zsh(scripts, name):
    body = (scripts / "zsh").read_text().split(f"\n    {name})\n")[1].split(";;")[0]
    for option, placeholder in options_of(name):
        assert re.search(rf"--{option}{'=' if placeholder else ''}[\[}}]", body)


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize(
    "words, expected",
    [
        (["muonium", ""], {*COMMANDS, "help"}),
        (["muonium", "or"], {"orthogonalize"}),
        (["muonium", "help", "co"], {"coeffs", "completion"}),
        (["muonium", "demo", "--st"], {"--steps"}),
        (["muonium", "demo", "--optimizer", ""], {"both", "adamw", "muon"}),
        (["muonium", "demo", "--size", "m"], {"medium"}),
        (["muonium", "demo", "--steps", ""], set()),
        (["muonium", "demo", "--data", "no"], {"notes.txt", "novel.txt"}),
        (["muonium", "demo", ""], set()),
        (["muonium", "coeffs", "--preset", "polar_express_"], {"polar_express_5", "polar_express_safer"}),
        (["muonium", "orthogonalize", "-c", "can"], {"cans"}),
        (["muonium", "orthogonalize", "--json", "nov"], {"novel.txt"}),
        (["muonium", "route", "--recipe", "mo"], {"motif", "moonlight"}),
        (["muonium", "completion", ""], set(SHELLS)),
        (["muonium", "manual", "insp"], {"inspect"}),
        (["muonium", "nonsense", "--"], set()),
    ],
)
def test_offers(scripts, tmp_path, shell, words, expected):
    for name in ("novel.txt", "notes.txt"):
        (tmp_path / name).touch()
    offered = COMPLETED[shell](scripts, words, tmp_path)
    if words[-1] == "":
        offered = {word for word in offered if not word.startswith("-")}
    assert offered == expected


def test_bash_takes_names_after_an_equals_sign(scripts, tmp_path):
    words = ["muonium", "orthogonalize", "--form", "=", "st"]
    assert by_bash(scripts, words, tmp_path) == {"standard"}
    assert by_bash(scripts, words[:-1], tmp_path) >= {"auto", "standard", "gram"}


# ---- zsh, which completes at a terminal only ----


class Zsh:
    """An interactive zsh that has loaded the script."""

    def __init__(self, script, place):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(place)
            os.environ.update(TERM="dumb", HOME=str(place), PS1="% ")
            os.execvp("zsh", ["zsh", "-f", "-i"])
        self.send("PS1= PROMPT_EOL_MARK= RPS1=; zstyle ':completion:*' list-prompt ''\n")
        self.send("autoload -Uz compinit && compinit -u -D && source '%s'\n" % script)
        self.send("bindkey '^X' list-choices; unsetopt zle_bracketed_paste 2>/dev/null\n")
        self.send("print re''ady\n")
        self.wait_for("ready")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, text, seconds=60):
        seen = ""
        deadline = time.monotonic() + seconds
        while text not in seen:
            if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"zsh said {seen!r}, not {text!r}")
            seen += os.read(self.terminal, 65536).decode(errors="replace")
        return seen

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.child, 0)


def test_zsh_completes(scripts, tmp_path):
    (tmp_path / "novel.txt").touch()
    assert output_of(["zsh", "-n", str(scripts / "zsh")]) == ""
    shell = Zsh(scripts / "zsh", tmp_path)
    try:
        # The words are kept by a function of the command's name: nothing runs.
        shell.send("muonium() { print -r -- \"<$*>\" }\n")
        for line, expected in [
            ("muonium orth", "orthogonalize"),
            ("muonium demo --optimizer mu", "demo --optimizer muon"),
            ("muonium demo --ste", "demo --steps"),
            ("muonium demo --data nov", "demo --data novel.txt"),
            ("muonium route --recipe moon", "route --recipe moonlight"),
            ("muonium orthogonalize -c can", "orthogonalize -c cans"),
            ("muonium orthogonalize nov", "orthogonalize novel.txt"),
            ("muonium completion fi", "completion fish"),
            ("muonium help insp", "help inspect"),
        ]:
            shell.send(line + "\t\n")
            seen = shell.wait_for(">\r\n")
            assert f"<{expected}" in seen, line
    finally:
        shell.close()
