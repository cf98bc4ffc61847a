#!/usr/bin/env python3
"""make_site.py BUILD DIRECTORY: write the pages of the documentation site and its mkdocs.yml.

Pages keep their place in the repository, so that most links hold. The reference is made from the
public headers and from the command of the build directory.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ["docs/*.md", "examples/README.md", "examples/*/README.md", "bench/results/*.md", "CONTRIBUTING.md", "CHANGELOG.md"]
MOVED = {  # files of the repository whose text is on another page of the site
    "docs/site/index.md": "index.md",
    "docs/README.md": "index.md",
    "README.md": "index.md",
    "include/muonium.h": "reference/muonium.md",
    "include/muonium_mpi.h": "reference/muonium_mpi.md",
    "docs/site/command": "reference/command.md",
}
LINK = re.compile(r"(?<!`)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")


def copied():
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if name not in MOVED:
                yield name


def relinked(text, name, page, pages, assets):
    """The text with links that hold on the site. A file that the site does not have is only named."""

    def link(found):
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target or ":" in target:
            return found[0]
        wanted = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if wanted not in MOVED and not (ROOT / wanted).exists():
            sys.exit(f"{name}: {target} does not exist")
        wanted = MOVED.get(wanted, wanted)
        if wanted.endswith((".svg", ".png")):
            assets.add(wanted)
        elif wanted not in pages:
            return words if "`" in words else f"{words} (`{wanted}`)"
        return f"[{words}]({os.path.relpath(wanted, os.path.dirname(page) or '.')}{anchor})"

    return LINK.sub(link, text)


# ---- a header as a page ----


def prose(comment):
    """A comment as Markdown: names as code, text that is indented after an empty line as a block."""
    lines = []
    block = False
    for line in comment:
        if line.startswith("    ") and (block or lines and not lines[-1]):
            block = True
            lines.append(line)
            continue
        block = block and not line
        words = re.sub(r"(?<![`\w/])((?:muonium|MUONIUM|struct)_\w+(?:\(\))?)(?!`)", r"`\1`", line)
        if words.lstrip().startswith("- ") and lines and lines[-1] and not lines[-1].lstrip().startswith("- "):
            lines.append("")
        lines.append(words.replace("<", "&lt;").replace("|", "\\|"))
    return "\n".join(lines)


def comment_text(lines):
    """The text of a comment without its marks."""
    text = "\n".join(lines).strip()
    text = text[2:-2].strip("\n")
    kept = [re.sub(r"^ \* ?", "", line).rstrip() for line in text.splitlines()]
    kept[0] = kept[0].strip()
    return kept


def declared_names(code):
    names = re.findall(r"^(?:MUONIUM_API|static inline)\s[^(]*?\*?(muonium_\w+)\(", code, re.M)
    names += re.findall(r"^typedef (?:enum|struct|union) (\w+)", code, re.M)
    names += re.findall(r"^typedef [^;{]*?\(\*?(\w+)\)\(", code, re.M)
    return list(dict.fromkeys(names))


def without_bodies(code):
    """Declarations alone: the bodies of inline functions say nothing to a caller."""
    return re.sub(r"^(static inline [^{;]*?)\s*\n\{\n.*?^\}$", r"\1;", code, flags=re.M | re.S)


def header_page(name, title):
    text = (ROOT / "include" / name).read_text()
    text = re.sub(r"^#(?:ifndef|ifdef|endif|else|if|include)\b.*$|^extern \"C\" \{$|^\}$(?=\n#endif)", "", text, flags=re.M)
    intro, rest = text.split("*/", 1)
    page = [f"# {title}", "", f"`#include <{name}>`. Generated from the header.", "", prose(comment_text((intro + "*/").splitlines())), ""]
    for block in re.split(r"\n\s*\n", rest):
        section = re.fullmatch(r"/\* -{4,} ?([\w -]+?) -{2,} \*/", block.strip())
        if section:
            page += [f"## {section[1].strip().capitalize()}", ""]
            continue
        comment, code = re.match(r"(/\*.*?\*/\n?)?(.*)", block.strip("\n"), re.S).groups()
        names = declared_names(code)
        if names:
            page += [f"### {', '.join(names)}" if len(names) < 4 else f"### {names[0]} and others", ""]
        if comment:
            page += [prose(comment_text(comment.splitlines())), ""]
        if code.strip():
            shown = without_bodies(code).replace("MUONIUM_API ", "").strip("\n")
            page += ["```c", shown, "```", ""]
    return "\n".join(page)


# ---- the command and the Python package ----


def command_page(muonium):
    def help_of(*command):
        return subprocess.run([muonium, *command, "--help"], check=True, capture_output=True, text=True).stdout

    summary = help_of()
    names = re.findall(r"^  ([a-z-]+)  ", summary, re.M)
    page = ["# Command line", "", "What `muonium --help` prints, and the help of each command.", "", "```text", summary.rstrip(), "```", ""]
    for name in names:
        page += [f"## muonium {name}", "", "```text", help_of(name).rstrip(), "```", ""]
    return "\n".join(page)


PYTHON_PAGE = """# Python

::: muonium
    options:
      show_root_heading: false
      show_root_toc_entry: false

::: muonium.torch

::: muonium.optax

::: muonium.jax
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} BUILD DIRECTORY")
    muonium, place = Path(sys.argv[1]) / "muonium", Path(sys.argv[2])
    made = {
        "reference/muonium.md": header_page("muonium.h", "C"),
        "reference/muonium_mpi.md": header_page("muonium_mpi.h", "C, many machines"),
        "reference/python.md": PYTHON_PAGE,
        "reference/command.md": command_page(muonium),
    }
    pages = {"index.md", *made, *copied()}
    assets = set()
    for name in copied():
        made[name] = relinked((ROOT / name).read_text(), name, name, pages, assets)
    home = "docs/site/index.md"
    made["index.md"] = relinked((ROOT / home).read_text(), home, "index.md", pages, assets)
    for name, text in made.items():
        path = place / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in assets:
        path = place / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    (place / "pages/style.css").write_bytes((ROOT / "docs/site/style.css").read_bytes())
    settings = (ROOT / "docs/site/mkdocs.yml").read_text().replace("PYTHON_PACKAGE", str(ROOT / "python"))
    (place / "mkdocs.yml").write_text(settings + "docs_dir: pages\nsite_dir: html\n")


main()
