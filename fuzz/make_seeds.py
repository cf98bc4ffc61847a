#!/usr/bin/env python3
"""Write the seeds of the fuzz targets that are made here: fuzz/corpus/{npy,options,
options_text,coefficients}. Those of safetensors come from tools/make_hostile_safetensors.py,
those of checkpoint are states that the library saved."""

import io
import struct
from pathlib import Path

import numpy

CORPUS = Path(__file__).resolve().parent / "corpus"


def npy(array, version=(1, 0)):
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def npy_raw(header, data=b""):
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def coefficients(kind, steps, *numbers):
    return struct.pack("<Bb", kind, steps) + struct.pack(f"<{len(numbers)}d", *numbers)


OUR_OPTIONS = (
    "recipe=muonium lr=0.02 weight_decay=0.1 momentum=0.95 adam_lr=-1 state_dtype=f32 master=no "
    "seed=0 nonfinite=error form=auto momentum_form=lerp nesterov=yes steps=5 lower=0.001"
)

SEEDS = {
    "npy": {
        "f2-2d.npy": npy(numpy.ones((2, 3), "<f2")),
        "f4-3d.npy": npy(numpy.ones((2, 1, 3), "<f4")),
        "f8-fortran.npy": npy(numpy.asfortranarray(numpy.ones((3, 2), "<f8"))),
        "scalar.npy": npy(numpy.float32(1)),
        "empty.npy": npy(numpy.ones((0, 5), "<f4")),
        "version-2.npy": npy(numpy.ones((1, 1), "<f4"), (2, 0)),
        "version-3.npy": npy(numpy.ones((1, 1), "<f4"), (3, 0)),
        "integers.npy": npy(numpy.ones((2, 2), "<i4")),
        "big-endian.npy": npy(numpy.ones((2, 2), ">f4")),
        "records.npy": npy(numpy.zeros(2, [("a", "<f4"), ("b", "<i2")])),
        "other-order.npy": npy_raw("{'shape': (1, ), 'fortran_order': True, 'descr': '<f2'}\n", b"12"),
        "double-quotes.npy": npy_raw('{"descr":"<f8","fortran_order":False,"shape":()}\n', bytes(8)),
        "huge.npy": npy_raw("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}\n"),
        "key-twice.npy": npy_raw("{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}\n", bytes(4)),
        "cut.npy": npy(numpy.ones((2, 3), "<f4"))[:30],
    },
    "options": {
        "recipe": b"--recipe=timm\n--lr\n0.05\n--momentum=0.9\n-n8\n",
        "all-switches": b"--nesterov=on\n--normuon=on\n--master=on\n--stochastic-rounding=on\n--seed=7\n",
        "names": b"--coefficients=quintic\n--normalize=schatten\n--precision=bf16\n--form=gram\n--scale=none\n",
        "adam": b"--route=adam\n--adam-lr=1e-3\n--adam-beta1=0.8\n--adam-beta2=0.99\n--adam-eps=1e-8\n",
        "limits": b"--lr=-1\n--momentum=1\n--eps=1e308\n--scale-factor=0\n",
        "shapes": b"--shapes=768x3072,24x128x512\n--json\n--params\nfile\n",
        "bad-shapes": b"--shapes=0x1,2x\n-pfile\n--\n--operand\n",
        "misspelt": b"--recip=tim\n",
        "misspelt-value": b"--recipe=tim\n",
        "help": b"-h\n",
        "twice": b"--lr=1\n--lr=2\n",
        "odd-numbers": b"--lr=1e-400\n--eps=.5\n--momentum=0x1\n",
    },
    "options_text": {
        "equal": (OUR_OPTIONS + "\n" + OUR_OPTIONS + "\n").encode() + struct.pack("<ddQ", 0.02, 0.95, 1),
        "changed": (OUR_OPTIONS + "\nlr=0.5 table=1,2,3;4,5,6\n").encode() + struct.pack("<ddQ", 1e-300, 0, 2**64 - 1),
        "odd": b"momentum_form=sum momentum=0.9 lr= = == a=b=c  lr=1 %\nword lr=\n",
        "escapes": b"a b,c%d\xff\n" + OUR_OPTIONS.encode(),
    },
    "coefficients": {
        "polar-express": coefficients(0, 5, 1e-3, 1e-2, 0.02),
        "polar-express-64": coefficients(0, 64, 1e-6, 0, 0.5),
        "polar-express-zero": coefficients(0, 3, 0, 0.02, 0.1),
        "polar-cubic": coefficients(1, 8, 1e-3, 0.02),
        "not-numbers": coefficients(0, 5, float("nan"), float("inf"), -1),
        "preset": struct.pack("<Bb", 2, 6) + b"quintic",
        "preset-unknown": struct.pack("<Bb", 2, 6) + b"quintal",
        "table": struct.pack("<Bb4B", 3, 0, 6, 2, 2, 0) + struct.pack("<6d", 3.4445, -4.775, 2.0315, 1.5, -0.5, 0),
        "table-wild": struct.pack("<Bb4B", 3, 0, 9, 1, 1, 1) + struct.pack("<3d", 1e300, -1e300, 1e-300),
    },
}


def main():
    for name, seeds in SEEDS.items():
        directory = CORPUS / name
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.iterdir():
            old.unlink()
        for file, content in seeds.items():
            (directory / (file if "." in file else f"{file}.seed")).write_bytes(content)


main()
