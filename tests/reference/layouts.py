"""Layouts: which matrices a tensor stands for.

Every layout is the same three choices: which axes together make the rows
(outputs), which make the columns (inputs), with all others a batch; and,
optionally, a split of the rows into consecutive blocks. `split` gives the
matrices, (out, in) each, in the order batch (row-major), then block;
`join` is its inverse.
"""
from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True)
class Layout:
    kind: str
    out_axes: tuple
    in_axes: tuple
    rows: tuple = None   # sizes of the blocks of rows; None: one block
    heads: int = None    # the same as that many equal blocks


def flatten(ndim=2):
    """(out, in * everything else); for two dimensions, the matrix as it is."""
    return Layout("flatten", (0,), tuple(range(1, ndim)))


def spatial():
    """(out, in, *positions): one (out, in) matrix per position."""
    return Layout("spatial", (0,), (1,))


def experts():
    """(*batch, out, in)."""
    return Layout("experts", (-2,), (-1,))


def fan(out_axes, in_axes):
    """Outputs and inputs named; the axes named in neither are a batch."""
    return Layout("fan", tuple(out_axes), tuple(in_axes))


def row_blocks(sizes=None, heads=None, base=None):
    """Blocks of rows, of the sizes given or as many equal ones as `heads`, of a two-
    dimensional tensor or of the matrices of the layout `base`."""
    base = base or flatten()
    if (sizes is None) == (heads is None):
        raise ValueError("rows: give either the sizes or the number of heads")
    return Layout("rows", base.out_axes, base.in_axes, tuple(sizes) if sizes else None, heads)


def _axes(shape, layout):
    ndim = len(shape)
    for axis in layout.out_axes + layout.in_axes:
        if not -ndim <= axis < ndim:
            raise ValueError(f"layout {layout.kind}: axis {axis} of a tensor of shape {shape}")
    out_axes = tuple(axis % ndim for axis in layout.out_axes)
    in_axes = tuple(axis % ndim for axis in layout.in_axes)
    used = out_axes + in_axes
    if not out_axes or not in_axes or len(set(used)) != len(used):
        raise ValueError(f"layout {layout.kind}: outputs {out_axes} and inputs {in_axes} must be "
                         "non-empty and disjoint")
    return tuple(axis for axis in range(ndim) if axis not in used), out_axes, in_axes


def _extents(shape, layout):
    """The permutation, and the sizes (batch, out, in) it leads to."""
    groups = _axes(shape, layout)
    return sum(groups, ()), tuple(prod(shape[axis] for axis in group) for group in groups)


def block_sizes(out, layout):
    if layout.heads is not None:
        if layout.heads < 1 or out % layout.heads:
            raise ValueError(f"heads is {layout.heads}: it must divide {out} rows")
        return (out // layout.heads,) * layout.heads
    sizes = layout.rows or (out,)
    if min(sizes) < 1 or sum(sizes) != out:
        raise ValueError(f"rows are {sizes}: they must be positive and add up to {out}")
    return sizes


def matrix_shapes(shape, layout):
    """The (out, in) of every matrix, in the order of `split`."""
    _, (batch, out, columns) = _extents(tuple(shape), layout)
    return [(rows, columns) for rows in block_sizes(out, layout)] * batch


def positions(shape, layout):
    """How many matrices a spatial layout makes; 1 for every other layout."""
    return _extents(tuple(shape), layout)[1][0] if layout.kind == "spatial" else 1


def split(tensor, layout):
    tensor = np.asarray(tensor)
    permutation, extents = _extents(tensor.shape, layout)
    cuts = np.cumsum(block_sizes(extents[1], layout))[:-1]
    stack = tensor.transpose(permutation).reshape(extents)
    return [block for matrix in stack for block in np.split(matrix, cuts)]


def join(matrices, shape, layout):
    permutation, extents = _extents(tuple(shape), layout)
    blocks = len(block_sizes(extents[1], layout))
    stack = [np.concatenate(matrices[i:i + blocks]) for i in range(0, len(matrices), blocks)]
    permuted = np.reshape(stack, [shape[axis] for axis in permutation])
    return permuted.transpose(np.argsort(permutation))
