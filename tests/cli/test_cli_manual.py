"""Manual pages and completions: they say what the command says, and shells understand them."""

import ctypes
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from muonium_command import BUILD, run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
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
    assert " ".join(example.split()).replace(" \\ ", " ") in text.replace(" \\ ", " ")
    narrow = output_of(["mandoc", "-T", "ascii", "-O", "width=80"], input=page)
    assert [x for x in re.sub(".\b", "", narrow).splitlines() if len(x) > 80] == []


def test_overview_page():
    page, _ = run("manual")
    check_page(page)
    text = rendered(page)
    for name in COMMANDS:
        assert f"muonium-{name}(1)" in text
    assert "MUONIUM_NUM_THREADS" in text and "EXIT STATUS" in text


def test_the_instruction_sets_are_those_of_the_library():
    """The texts name all of them, x86 first, whatever this machine and compiler have."""
    table = (SOURCE / "src/base/instruction_sets.def").read_text()
    portable, x86, arm = (re.findall(r"^INSTRUCTION_SET\((\w+),", part, re.M)
                          for part in re.split(r"^#if defined\(__(?:x86_64|aarch64)__\)", table, flags=re.M))
    assert len(x86) >= 6 and len(arm) >= 4
    listed = ", ".join(portable + x86), ", ".join(portable + arm)
    header = " ".join((SOURCE / "include/muonium.h").read_text().replace("\n *", "\n").split())
    assert f": {listed[0]}; on 64-bit Arm {listed[1]};" in header
    assert f": {listed[0]}; on 64-bit Arm {listed[1]}" in " ".join(rendered(run("manual")[0]).split())


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


HEADERS = sorted((SOURCE / "include").glob("*.h"))
DEFAULTS = ("src/options/options.def",)


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """The pages of section 3 of all headers, below a directory as man(1) expects it."""
    place = tmp_path_factory.mktemp("manual")
    for header in HEADERS:
        output_of([str(SOURCE / "tools/make-manual-3"), str(header), "muonium", "1.2.3",
                   str(place / "man3"), *DEFAULTS], cwd=SOURCE)
    return place


def declared_in(header):
    """The functions that a header declares, and its types."""
    source = header.read_text()
    functions = set(re.findall(r"^(?:MUONIUM_API.*?[ *]|static inline .*?[ *]|)(muonium_\w+)\(",
                               source, re.M))
    types = set(re.findall(r"^typedef (?:struct|enum) (muonium_\w+)", source, re.M))
    types |= set(re.findall(r"^typedef \w+ (muonium_\w+)\(", source, re.M))
    return functions, types


def shown(manual, name, *arguments):
    """The page of a name as a reader of a terminal of 80 columns sees it."""
    text = output_of(["mandoc", "-T", "ascii", "-O", "width=80", *arguments, f"man3/{name}.3"],
                     cwd=manual)
    return re.sub(".\b", "", text)


@pytest.mark.parametrize("header", HEADERS, ids=lambda p: p.name)
def test_page_of_a_header(manual, header):
    page = (manual / "man3" / f"{header.stem}.3").read_text()
    check_page(page)
    text = rendered(page)
    functions, types = declared_in(header)
    assert len(functions) > 3
    for name in functions | types:
        assert name in text
    assert "MUONIUM_API" not in text
    # What a comment says reaches the reader, wherever it stands.
    source = header.read_text()
    for comment in re.findall(r"^/\* ((?:(?!\*/).|\n)*)\*/\nMUONIUM_API", source, re.M):
        sentence = " ".join(re.sub(r"\n \* ?", " ", comment).split()).split(". ")[0]
        assert sentence in text


@pytest.mark.parametrize("header", HEADERS, ids=lambda p: p.name)
def test_every_function_and_type_has_a_page(manual, header):
    functions, types = declared_in(header)
    for name in sorted((functions | types) - {header.stem}):  # the page of the header has that name
        page = (manual / "man3" / f"{name}.3").read_text()
        text = " ".join(shown(manual, name).split())
        assert re.search(rf"NAME [\w, ]*\b{name}\b[\w, ]* - [\w`]", text), name
        synopsis = text.split(" SYNOPSIS ")[1].split(" DESCRIPTION ")[0]
        assert re.search(rf"\b{name}(\(| {name};|;)", synopsis), name
        assert f"{header.stem}(3)" in text.split(" SEE ALSO ")[1]
        if not page.startswith(".so "):
            check_page(page)


def test_a_page_shows_its_function(manual):
    text = " ".join(shown(manual, "muonium_step_at").split())
    assert "muonium_status muonium_step_at(muonium_optimizer *optimizer, void *const *data," in text
    assert "data[i] and grads[i] are those of parameter i" in text
    assert "RETURN VALUE MUONIUM_OK (0), or after an error another value" in text
    assert "muonium_writer" not in text
    # Functions that share a comment share a page.
    assert shown(manual, "muonium_load_from") == shown(manual, "muonium_load")
    if shutil.which("man"):
        found = output_of(["man", "-M", str(manual), "muonium_load_from"],
                          env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C"})
        assert found.startswith("MUONIUM_LOAD(3)")


def test_pages_fit_80_columns(manual):
    pages = sorted(p.stem for p in (manual / "man3").iterdir())
    assert len(pages) > 100
    for name in pages:
        page = (manual / "man3" / f"{name}.3").read_text()
        if page.startswith(".so "):
            continue
        wide = [line for line in shown(manual, name).splitlines() if len(line) > 80]
        assert wide == [], name
        typeset = output_of(["groff", "-man", "-T", "ascii", "-P-cbou", "-rLL=80n"], input=page)
        assert [line for line in typeset.splitlines() if len(line) > 80] == [], name


def defaults_in(text):
    """The defaults that a page lists, by field."""
    found = {}
    for names, values in re.findall(
            r"^       (?:[\w*() ]+?[ *])(\w+(?:, \w+)*)\)?(?:\[3\])?\n"
            r"(?:              .*\n)*?              (?:.*\s)?Defaults?:\s+(\S+(?:, \S+)*)\.\n",
            text, re.M):
        found.update(zip(names.split(", "), values.split(", ")))
    return found


def test_defaults_are_listed_and_are_those_of_the_library(manual):
    header = (SOURCE / "include/muonium.h").read_text()
    numbers = {name: int(value) for name, value in
               re.findall(r"^    (MUONIUM_\w+) = (\d+)", header, re.M)}
    numbers.update(true=1, false=0, NULL=None)
    import muonium_library

    ours = muonium_library.make_options()
    listed = defaults_in(shown(manual, "muonium_options"))
    fields = [name for name, *_ in ours._fields_ if name not in ("struct_size", "plan")]
    assert sorted(listed) == sorted(fields)
    for name, text in listed.items():
        value = getattr(ours, name)
        expected = numbers[text] if text in numbers else float(text)
        assert (not value if expected is None else value == expected), name
    # And of those whose comments tell them, once.
    plan = defaults_in(shown(manual, "muonium_plan_options"))
    assert plan["safety"] == "2e-2" and plan["eps"] == "1e-7" and plan["safety_factor"] == "1"


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
