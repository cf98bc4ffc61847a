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
COPIED = ["docs/*.md", "examples/**/README.md", "bench/results/*.md", "bench/results/*/*.md",
          "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
MOVED = {  # files of the repository whose text is on another page of the site
    "docs/site/index.md": "index.md",
    "docs/README.md": "index.md",
    "README.md": "index.md",
    "include/muonium.h": "reference/muonium.md",
    "include/muonium_mpi.h": "reference/muonium_mpi.md",
    "include/muonium_mpi_plan.h": "reference/muonium_mpi_plan.md",
    "docs/site/command": "reference/command.md",
}
# Sections that have a page of their own, too: people look for them by name.
SECTIONS = {
    "guides/offload.md": ("docs/pytorch.md", "Offload"),
    "guides/fixed-point.md": ("docs/numerics.md", "Fixed point"),
    "reference/options.md": ("docs/recipes.md", "All options"),
}
# What the theme leaves out beside a page: the list of pages, or that of the page's headings beside wide tables.
HIDDEN = {"index.md": ["navigation", "toc"], "reference/options.md": ["toc"]}
SOURCES = {path.name for path in (ROOT / "examples").rglob("*.*")} - {"README.md"}
LANGUAGES = {".c": "c", ".h": "c", ".py": "python"}  # of programs, which become pages
LINK = re.compile(r"(?<!`)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")


def copied():
    for pattern in COPIED:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if name not in MOVED:
                yield name


def programs():
    """The sources of examples: those that a page links to."""
    found = set()
    for name in copied():
        for _, target, _ in LINK.findall((ROOT / name).read_text()):
            wanted = os.path.normpath(os.path.join(os.path.dirname(name), target))
            if wanted.startswith("examples/") and Path(wanted).suffix in LANGUAGES:
                found.add(wanted)
    return sorted(found)


def program_page(name):
    path = ROOT / name
    text = path.read_text().rstrip()
    return f"# {name}\n\n```{LANGUAGES[path.suffix]}\n{text}\n```\n"


def relinked(text, name, page, pages, assets):
    """The text with links that hold on the site. A file that the site does not have is only named."""

    def link(found):
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target and page in SECTIONS:  # to another section of the page that this one is from
            target = os.path.basename(name)
        if not target or ":" in target:
            return found[0]
        wanted = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if wanted not in MOVED and not (ROOT / wanted).exists():
            sys.exit(f"{name}: {target} does not exist")
        wanted = MOVED.get(wanted, wanted)
        if f"{wanted}.md" in pages:
            wanted += ".md"
        if wanted.endswith((".svg", ".png")):
            assets.add(wanted)
        elif wanted not in pages:
            named = wanted.endswith(words.strip("`"))
            return f"`{wanted}`" if named else words if "`" in words else f"{words} (`{wanted}`)"
        return f"[{words}]({os.path.relpath(wanted, os.path.dirname(page) or '.')}{anchor})"

    return LINK.sub(link, text)


def section_page(name, heading):
    """A section of a page as a page: its headings move up. Searches find the section where it is."""
    text = (ROOT / name).read_text()
    found = re.search(rf"^(#+) {heading}$\n(.*?)(?=^#{{1,2}} |^\1 |\Z)", text, re.M | re.S)
    if not found:
        sys.exit(f"{name} has no section {heading}")
    title = re.match(r"# (.*)", text)[1]
    anchor = heading.lower().replace(" ", "-")
    body = re.sub(r"^#(#+ )", r"\1", found[2], flags=re.M)
    return (f"# {heading}\n\n"
            f"From [{title}]({os.path.basename(name)}#{anchor}).\n{body}")


def benchmarks(made):
    """An index of the pages of results, and their entries in the navigation: this version's first."""
    pages = sorted((name for name in made if name.startswith("bench/results/")), key=lambda name: (name.count("/"), name))
    entries = {}
    for name in pages:
        older = name.split("/")[2] if name.count("/") > 2 else ""
        title = re.search(r"^# (.*)$", made[name], re.M)[1] + (f" (Muonium {older})" if older else "")
        kernel = re.search(r"kernel ([a-z0-9]+)_", made[name])
        entries[name] = title.replace(" (", f", {kernel[1]} (", 1) if kernel and older else (
            f"{title}, {kernel[1]}" if kernel else title)
    made["bench/results/index.md"] = "\n".join([
        "# Benchmarks", "", "Results of single machines. [Performance](../../docs/performance.md) explains how to measure yours,",
        "how to read a page, and what to expect.", "",
        *(f"- [{title}]({os.path.relpath(name, 'bench/results')})" for name, title in entries.items()), ""])
    return {"Overview": "bench/results/index.md", **{title: name for name, title in entries.items()}}


def front_matter(page):
    lines = [f"hide: [{', '.join(HIDDEN[page])}]"] if page in HIDDEN else []
    lines += ["hide: [toc]"] if page.startswith("bench/results/") or Path(page).stem in SOURCES else []
    lines += ["search: {exclude: true}"] if page in SECTIONS else []
    return "\n".join(["---", *lines, "---", "", ""]) if lines else ""


def with_entries(settings, mark, entries):
    """The navigation with entries at the place of a mark."""
    indent, = re.findall(rf"^( *)- {mark}$", settings, re.M)
    lines = "\n".join(f'{indent}- "{title}": {name}' for title, name in entries.items())
    return re.sub(rf"^ *- {mark}$", lambda _: lines, settings, flags=re.M)


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
        words = re.sub(r"(?<![`\w/])((?:muonium|MUONIUM|struct)_\w+(?:\.h|\(\))?)(?!`)", r"`\1`", line)
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
        if re.fullmatch(r"#define (\w+_H|MUONIUM_API.*)", code.strip()):  # says nothing to a caller
            continue
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
        "reference/muonium_mpi_plan.md": header_page("muonium_mpi_plan.h", "C, planning many machines"),
        "reference/python.md": PYTHON_PAGE,
        "reference/command.md": command_page(muonium),
        **{f"{name}.md": program_page(name) for name in programs()},
    }
    pages = {"index.md", *made, *copied()}
    assets = set()
    for name in copied():
        made[name] = relinked((ROOT / name).read_text(), name, name, pages, assets)
    for page, (name, heading) in SECTIONS.items():
        made[page] = relinked(section_page(name, heading), name, page, pages, assets)
    home = "docs/site/index.md"
    made["index.md"] = relinked((ROOT / home).read_text(), home, "index.md", pages, assets)
    settings = (ROOT / "docs/site/mkdocs.yml").read_text().replace("PYTHON_PACKAGE", str(ROOT / "python"))
    settings = with_entries(settings, "BENCHMARKS", benchmarks(made))
    settings = with_entries(settings, "PROGRAMS", {name.removeprefix("examples/"): f"{name}.md" for name in programs()})
    for name, text in made.items():
        path = place / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(front_matter(name) + text)
    for name in assets:
        path = place / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    for name, where in (("style.css", place / "pages"), ("docstrings.py", place)):
        (where / name).write_bytes((ROOT / "docs/site" / name).read_bytes())
    (place / "mkdocs.yml").write_text(settings + "docs_dir: pages\nsite_dir: html\n")


main()
