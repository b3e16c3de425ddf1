"""Rotations by hand."""

import numpy as np

from vade_jax.models.qwen25vl import rope


def test_sections_turn_with_their_axis():
    rotation = rope.text(np.array([[2, 3, 5]]), (1, 2, 1), 100.0)
    # Four frequencies 100^(-0/8), 100^(-2/8), ...: the first turns with t, two with h, one with w.
    angle = np.array([2, 3 * 100**-0.25, 3 * 100**-0.5, 5 * 100**-0.75])
    np.testing.assert_allclose(rotation.cos[0], np.cos(angle), atol=1e-6)
    np.testing.assert_allclose(rotation.sin[0], np.sin(angle), atol=1e-6)


def test_rotation_pairs_halves():
    rotation = rope.Rotation(cos=np.array([0.0, 1.0]), sin=np.array([1.0, 0.0]))
    # A quarter turn of (x0, x2), none of (x1, x3).
    got = rope.rotate(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32), rotation)
    np.testing.assert_allclose(got, [[-3, 2, 1, 4]])


def test_vision_splits_frequencies_between_rows_and_columns():
    rotation = rope.vision(np.array([3]), np.array([7]), 8)
    angle = np.array([3, 3 * 10000**-0.5, 7, 7 * 10000**-0.5])
    np.testing.assert_allclose(rotation.cos[0], np.cos(angle), atol=1e-6)
