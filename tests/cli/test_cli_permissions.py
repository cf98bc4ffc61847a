"""Files that the command replaces: permissions without the bits that lend an identity, whoever
owned them, and links that wait in the temporary's place."""

import os
import shutil
import stat
import subprocess

import numpy as np
import pytest

from muonium_command import MUONIUM
from safetensors_file import pack, write

NOBODY = 65534

# Each writes the file whose name is appended.
WRITERS = {
    "npy": ("orthogonalize", "in.npy"),
    "svg": ("coeffs", "--plot"),
    "safetensors": ("orthogonalize", "in.safetensors"),
    "state": ("step", "-p", "in.safetensors", "-g", "in.safetensors", "-o", "out.safetensors", "-s"),
}


@pytest.fixture
def directory(tmp_path):
    array = np.eye(4, dtype="<f4")
    np.save(tmp_path / "in.npy", array)
    write(tmp_path / "in.safetensors", {"w": pack(array)})
    shutil.copy(MUONIUM, tmp_path / "muonium")  # where another user can reach it
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    return tmp_path


def produce(directory, kind, target, *prefix, mask=0o022):
    command = [*prefix, "./muonium", *WRITERS[kind], target]
    done = subprocess.run(command, cwd=directory, capture_output=True, timeout=60,
                          preexec_fn=lambda: os.umask(mask))
    assert done.returncode == 0, done.stderr


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("kind", WRITERS)
def test_modes(directory, kind):
    target = directory / f"target.{kind}"
    produce(directory, kind, target.name, mask=0o027)
    assert mode_of(target) == 0o640
    for mode in (0o644, 0o600, 0o6755, 0o4711, 0o1666):
        target.chmod(mode)
        produce(directory, kind, target.name, mask=0o077)
        assert mode_of(target) == mode & 0o777


@pytest.mark.parametrize("kind", WRITERS)
def test_other_owners(directory, kind):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    target = directory / f"target.{kind}"
    produce(directory, kind, target.name)
    os.chown(target, NOBODY, NOBODY)
    target.chmod(0o6750)
    produce(directory, kind, target.name)
    assert target.stat().st_uid == 0 and mode_of(target) == 0o700
    target.chmod(0o6755)
    for place in (directory, *directory.parents[:2]):  # pytest keeps these to itself
        place.chmod(0o755)
    os.chown(directory, NOBODY, NOBODY)
    produce(directory, kind, target.name, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
            "--clear-groups")
    assert target.stat().st_uid == NOBODY and mode_of(target) == 0o755


@pytest.mark.parametrize("kind", WRITERS)
def test_links_in_the_temporary_s_place(directory, kind):
    victim = directory / "victim"
    victim.write_text("precious")
    target = directory / f"target.{kind}"
    script = """
        for i in 0 1 2 3 4 5; do
            ln -s victim "$1.tmp-$$-$i"; ln -s victim ".muonium-$$-$i.tmp"
        done
        target=$1; shift; exec ./muonium "$@" "$target"
    """
    done = subprocess.run(["sh", "-c", script, "sh", target.name, *WRITERS[kind]], cwd=directory,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious" and target.stat().st_size > 64
    assert not target.is_symlink()
    assert sum(p.is_symlink() for p in directory.iterdir()) == 12


def test_state_of_another_is_not_taken(directory):
    """After an interrupted step: what lies beside the state must be a file of ours."""
    step = ["./muonium", "step", "-p", "p", "-g", "in.safetensors", "-s", "s"]
    shutil.copy(directory / "in.safetensors", directory / "p")
    subprocess.run(step, cwd=directory, check=True, capture_output=True)
    shutil.copy(directory / "s", directory / "old")
    subprocess.run(step, cwd=directory, check=True, capture_output=True)
    (directory / "s").rename(directory / "elsewhere")
    (directory / "old").rename(directory / "s")
    (directory / "s.tmp-1-0").symlink_to("elsewhere")
    done = subprocess.run(step, cwd=directory, capture_output=True)
    assert done.returncode == 1 and b"another state" in done.stderr
    assert (directory / "s.tmp-1-0").is_symlink()
    (directory / "s.tmp-1-0").unlink()
    (directory / "elsewhere").rename(directory / "s.tmp-1-0")
    if os.geteuid() == 0:
        os.chown(directory / "s.tmp-1-0", NOBODY, NOBODY)
        assert b"another state" in subprocess.run(step, cwd=directory, capture_output=True).stderr
        os.chown(directory / "s.tmp-1-0", 0, 0)
    assert b"interrupted" in subprocess.run(step, cwd=directory, capture_output=True).stderr
