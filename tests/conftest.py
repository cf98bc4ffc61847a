"""Lets every test import the helpers in support/ and the package reference/, wherever it lies."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS / "support")]
