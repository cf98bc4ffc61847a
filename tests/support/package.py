"""Makes the Python package of the source tree importable, with the library of MUONIUM_BUILD_DIR, by
default build/ of the source tree. A test imports this before it imports muonium."""
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MUONIUM_BUILD_DIR", ROOT / "build"))
LIBRARY = BUILD / "libmuonium.so"
SEED = int(os.environ.get("MUONIUM_TEST_SEED", time.time_ns() % 2**32))

os.environ["MUONIUM_LIBRARY"] = str(LIBRARY)
sys.path.insert(0, str(ROOT / "python"))
