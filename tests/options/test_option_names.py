"""Every value of every enum of muonium.h has a name, and every name a value; and the library's
list of options is the fields of the header's structs."""
import ctypes
import os
import re
import subprocess
import sys

import pytest

from package import BUILD, ROOT
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/muonium.h").read_text(), flags=re.S)
LIBRARY = ctypes.CDLL(str(BUILD / "libmuonium.so"))
LIBRARY.muonium_enum_name.restype = ctypes.c_char_p
LIBRARY.muonium_option_find.restype = ctypes.c_void_p

ENUMS = {name: [(key, int(value)) for key, value in re.findall(r"(\w+) = (\d+)", body)]
         for name, body in re.findall(r"typedef enum (muonium_\w+) \{(.*?)\}", HEADER, re.S)
         if name != "muonium_status"}  # its names are those of muonium_status_name


def test_the_header_is_understood():
    assert len(ENUMS) >= 17 and ("MUONIUM_FORM_GRAM", 2) in ENUMS["muonium_form"]


@pytest.mark.parametrize("enum", sorted(ENUMS))
def test_every_value_has_a_name_and_every_name_a_value(enum):
    values = dict(ENUMS[enum])
    assert sorted(values.values()) == list(range(len(values)))
    names = [LIBRARY.muonium_enum_name(enum.encode(), value) for value in range(-2, len(values) + 40)]
    assert names[:2] == [None, None] and set(names[2 + len(values):]) == {None}
    named = [name.decode() for name in names[2:2 + len(values)]]
    assert len(set(named)) == len(values)
    for key, value in values.items():  # MUONIUM_FORM_GRAM is "gram"
        assert key.lower().endswith(named[value]), key


@pytest.mark.parametrize("struct", ["muonium_plan_options", "muonium_options"])
def test_every_field_is_an_option(struct):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (struct, struct), HEADER, re.S)[1]
    fields = re.findall(r"(\w+)(?:\)\[3\])?;", body)
    second = {"table_rows", "pattern_count", "log_context"}
    assert len(fields) > 10
    for field in fields:
        found = LIBRARY.muonium_option_find(field.encode())
        assert bool(found) == (field not in {"struct_size", "plan", *second}), field


def test_lists_in_docs_and_types_are_those_of_the_library():
    done = subprocess.run([sys.executable, str(ROOT / "tools/make-option-lists"), "--check"],
                          env={**os.environ, "MUONIUM_LIBRARY": str(BUILD / "libmuonium.so")},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_line_offers_every_option_that_is_saved():
    from muonium._library import OPTIONS
    spelled = {"normalization": "normalize", "patterns": "pattern", "split_fused": "split",
               "layout_3d": "experts"}
    saved = [option for option in OPTIONS.values() if option.saved and option.type != "table"]
    for command, offered in (("step", saved), ("route", saved), ("mpi-plan", saved),
                             ("orthogonalize", [option for option in saved if option.plan])):
        text = subprocess.run([str(BUILD / "muonium"), command, "--help"], capture_output=True,
                              text=True, check=True).stdout
        text = text.split("Options:")[1].split("Example:")[0]
        names = re.findall(r"^(?:  -\w, |      )--([\w-]+)", text, re.M)
        assert len(names) == len(set(names))
        for option in offered:
            assert spelled.get(option.name, option.name.replace("_", "-")) in names, option.name
