"""The pages whose code blocks are tested: here with what Debian has, in tests/compare with what PyPI has."""
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "python/README.md",
         *sorted((SOURCE / "docs").glob("*.md")), *sorted((SOURCE / "docs/site").glob("*.md")),
         *sorted((SOURCE / "examples").rglob("*.md"))]
# Pages whose Python needs what Debian does not have: JAX, PyTorch 2 and its frameworks.
FROM_PYPI = {"docs/jax.md", "docs/pytorch.md"}

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


def name_of(path):
    return str(path.relative_to(SOURCE))


def blocks_of(path):
    """(language, text) of the fenced blocks, without their indentation."""
    return [(language, re.sub(rf"^{indent}", "", text, flags=re.M))
            for indent, language, text in BLOCK.findall(path.read_text("utf-8"))]


def python_of(path, from_pypi):
    """The blocks of Python that need packages from PyPI, or those that do not."""
    return [text for language, text in blocks_of(path) if language == "python"
            and from_pypi == (name_of(path) in FROM_PYPI or "muonium.optax" in text)]
