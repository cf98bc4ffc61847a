#!/usr/bin/env python3
"""Several builds of the library in turns, in one process: what a change to it is worth.

    PYTHONPATH=python bench/turns.py OLD/libmuonium.so build/libmuonium.so
                      [--shapes 768x3072,24x128x512] [--threads N] [--seconds S]
                      [--precision bf16]

Every contestant, written PATH[@CPU][:TYPE], as build/libmuonium.so@avx2:bf16, is a copy of its
own of that library, with MUONIUM_CPU as given, and orthogonalises matrices stored in that type.
All compute in the type of --precision. They take turns, so that whatever else the machine does
meets all alike. Of each the best time is printed, that over the first one's best, and the median
over the turns of its time over the first one's in the same turn: trust what both say. Where memory
happens to lie makes 2 % at 64.
"""

import argparse
import ctypes
import mmap
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy

from muonium._library import DTYPES, PlanOptions, Shape, View

MAX_STEPS = 64  # MUONIUM_MAX_STEPS


class PlanInfo(ctypes.Structure):
    """muonium_plan_info, for the bytes of workspace at its end."""

    _fields_ = [("form", ctypes.c_int), ("steps", ctypes.c_int), ("restarts", ctypes.c_int),
                ("restart", ctypes.c_int * MAX_STEPS), ("table", ctypes.c_double * 3 * MAX_STEPS),
                ("direct_set", ctypes.c_char_p), ("band", ctypes.c_double),
                ("flops", ctypes.c_double), ("workspace", ctypes.c_size_t)]


class SizedPlanInfo(ctypes.Structure):
    """The same from version 0.2 on, where it starts with its size."""

    _fields_ = [("struct_size", ctypes.c_size_t), *PlanInfo._fields_]


def memory(size):
    """Bytes of our own, in huge pages where the system grants them; its address is aligned."""
    block = mmap.mmap(-1, max(size, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block, ctypes.addressof(ctypes.c_char.from_buffer(block))


def stored(values, dtype):
    """The bytes of f32 values in a type of DTYPES."""
    if dtype == "bf16":  # cut off: any bf16 will do
        return (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
    return values.astype({"f32": "f4", "f64": "f8", "f16": "f2"}[dtype]).tobytes()


class Contestant:
    def __init__(self, name, directory, threads, precision):
        path, _, self.dtype = name.partition(":")
        path, _, cpu = path.partition("@")
        self.dtype = self.dtype or "f32"
        if self.dtype not in DTYPES[:4]:
            raise SystemExit(f"bench/turns.py: {self.dtype} in {name} is none of "
                             + ", ".join(DTYPES[:4]))
        try:
            copy = shutil.copy(path, Path(directory) / f"{len(os.listdir(directory))}.so")
        except OSError as problem:
            raise SystemExit(f"bench/turns.py: cannot read {path}: {problem.strerror}")
        os.environ.pop("MUONIUM_CPU", None)
        if cpu:
            os.environ["MUONIUM_CPU"] = cpu
        self.name, self.library = name, ctypes.CDLL(copy)
        self.sized = hasattr(self.library, "muonium_plan_execute_sized")  # from 0.2 on
        self.execute = getattr(self.library, "muonium_plan_execute" + "_sized" * self.sized)
        self.precision = DTYPES.index(precision)
        self.library.muonium_last_error.restype = ctypes.c_char_p
        if threads:
            self.check(self.library.muonium_set_threads(ctypes.c_uint(threads)))
        self.prepare((1, 8, 8), numpy.ones(64, "f4"))  # chooses the kernels

    def check(self, status):
        if status != 0:
            raise SystemExit(f"bench/turns.py: {self.name}: "
                             f"{self.library.muonium_last_error().decode()}")

    def prepare(self, shape, values):
        """A plan, matrices and workspace, for run() to use again and again."""
        shape, options = Shape(*shape), PlanOptions()
        self.plan, call = ctypes.c_void_p(), self.library
        call.muonium_plan_options_init_sized(ctypes.byref(options),
                                             ctypes.c_size_t(ctypes.sizeof(options)))
        options.precision = self.precision
        self.check(call.muonium_plan_create(shape, ctypes.byref(options), ctypes.byref(self.plan)))
        if self.sized:
            info = SizedPlanInfo()
            self.check(call.muonium_plan_describe_sized(self.plan, ctypes.byref(info),
                                                        ctypes.c_size_t(ctypes.sizeof(info))))
        else:
            info = PlanInfo()
            self.check(call.muonium_plan_describe(self.plan, ctypes.byref(info)))
        data = stored(values, self.dtype)
        self.blocks = [memory(size) for size in (len(data), len(data), info.workspace)]
        self.blocks[0][0][:] = data
        strides = (shape.rows * shape.cols, shape.cols, 1)
        dtype = DTYPES.index(self.dtype)
        self.views = [View(address, dtype, *strides) for _, address in self.blocks[:2]]
        self.times = []

    def run(self):
        begin = time.perf_counter()
        status = self.execute(
            self.plan, ctypes.byref(self.views[0]), ctypes.byref(self.views[1]),
            ctypes.c_void_p(self.blocks[2][1]), None, ctypes.c_size_t(0))
        self.times.append(time.perf_counter() - begin)
        self.check(status)

    def release(self):
        self.library.muonium_plan_destroy(self.plan)


def compare(contestants, shape, seconds):
    """Lines of a table: turns of one shape, the first of which does not count."""
    count = shape[0] * shape[1] * shape[2]
    values = numpy.random.default_rng(0).standard_normal(count, dtype="f4")
    for one in contestants:
        one.prepare(shape, values)
    end = time.perf_counter() + seconds * len(contestants)
    turns = 0
    while turns < 2 or time.perf_counter() < end:
        for i in range(len(contestants)):
            contestants[(turns + i) % len(contestants)].run()
        turns += 1
    first = contestants[0].times[1:]
    for one in contestants:
        times = one.times[1:]
        paired = statistics.median(time / other for time, other in zip(times, first))
        yield (f"| {'x'.join(map(str, shape))} | {one.name} | {1e3 * min(times):.3f} | "
               f"{min(times) / min(first):.3f} | {paired:.3f} |")
        one.release()


def shape_of(text):
    sizes = [int(size) for size in text.split("x")]
    return tuple([1] * (3 - len(sizes)) + sizes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("contestants", nargs="+", metavar="PATH[@CPU][:TYPE]")
    parser.add_argument("--shapes", default="256x64x64,24x128x512,512x512,1024x1024,768x3072")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--precision", choices=DTYPES, default="f32")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each, at each shape")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        contestants = [Contestant(name, directory, options.threads, options.precision)
                       for name in options.contestants]
        print("| shape | | best, ms | over the first's | median over the first's |")
        print("|---|---|---|---|---|")
        for shape in options.shapes.split(","):
            for line in compare(contestants, shape_of(shape), options.seconds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
