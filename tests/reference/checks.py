"""What the tests of the reference share: the seed, matrices to try, another route to a result."""
import os

import numpy as np

from . import layouts
from .coefficients import apply_table

SEED = int(os.environ.get("MUONIUM_TEST_SEED", "20240607"))


def fresh_rng():
    print(f"MUONIUM_TEST_SEED={SEED}")
    return np.random.default_rng(SEED)


def with_singular_values(rng, rows, columns, sigma):
    """A matrix of random singular vectors with the singular values given."""
    u = np.linalg.qr(rng.standard_normal((rows, len(sigma))))[0]
    v = np.linalg.qr(rng.standard_normal((columns, len(sigma))))[0]
    return (u * sigma) @ v.T


def by_svd(matrix, table, bound=None):
    """The iteration through singular values; divided by the Frobenius norm by default."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return (u * apply_table(table, s / (np.linalg.norm(s) if bound is None else bound))) @ vt


def relative(x, y):
    return np.linalg.norm(x - y) / np.linalg.norm(y)


# Shape, layout, and the matrices that the layout makes.
LAYOUTS = [
    ((6, 9), layouts.flatten(), [(6, 9)]),
    ((6, 4, 3, 2), layouts.flatten(4), [(6, 24)]),
    ((6, 4, 3, 2), layouts.spatial(), [(6, 4)] * 6),
    ((6, 4, 5), layouts.spatial(), [(6, 4)] * 5),
    ((3, 6, 4), layouts.experts(), [(6, 4)] * 3),
    ((2, 3, 6, 4), layouts.experts(), [(6, 4)] * 6),
    ((12, 5), layouts.row_blocks(sizes=(6, 4, 2)), [(6, 5), (4, 5), (2, 5)]),
    ((12, 5), layouts.row_blocks(heads=3), [(4, 5)] * 3),
    ((2, 12, 5), layouts.row_blocks(sizes=(8, 4), base=layouts.experts()),
     [(8, 5), (4, 5)] * 2),
    ((3, 4, 5, 6), layouts.fan(out_axes=(3, 1), in_axes=(0,)), [(24, 3)] * 5),
    ((4, 7), layouts.fan(out_axes=(1,), in_axes=(0,)), [(7, 4)]),
    ((3, 4, 5), layouts.fan(out_axes=(-1,), in_axes=(0, 1)), [(5, 12)]),
]
