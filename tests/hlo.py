"""What the text of a compiled program says of the weights that it uses."""

import collections
import re

import jax

from vade_jax.trainer import mesh


def unrounded(text, params):
    """Returns the paths of float32 weights that a program computing in bfloat16 may use unrounded.

    Every weight is rounded by a `reduce-precision` of its own, one layer's at a time: no compiler may
    drop that, as they drop casts. Weights of one size are told apart by their number alone.
    """
    found = collections.Counter(
        _size(dims.split(",")) for dims in re.findall(r"f32\[([\d,]+)\]\S* reduce-precision\(", text)
    )
    names = collections.defaultdict(list)
    for path, leaf in jax.tree.leaves_with_path(params):
        name = mesh.path_name(path)
        stacked = "/layers/" in name or "/blocks/" in name
        names[_size(leaf.shape[stacked:])].append(name)
    return [name for size, same in names.items() if found[size] < len(same) for name in same]


def _size(dims):
    return tuple(sorted(int(x) for x in dims if int(x) > 1))
