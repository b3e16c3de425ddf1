"""The teacher of the warm start."""

import numpy as np

from vade_jax.data import procedural


def test_the_teacher_is_wrong_as_often_as_asked_and_within_family_and_level():
    """A stand-in is drawn from the family and level, so it is sometimes right by chance."""
    source = procedural.Procedural(0, 400, "warmup")
    items = [source[i] for i in range(400)]
    part = lambda item: f"{item.metadata['family']}_{item.metadata['level']}"
    family = part(items[0])
    inside = [item for item in items if part(item) == family]
    known = {procedural.target_text(item) for item in inside}

    def right(noise):
        teacher = procedural.Teacher(source, {family: noise}, 3)
        truth = procedural.target_text(inside[0])
        return np.mean([teacher(inside[0], i) == truth for i in range(60)])

    assert right(0.0) == 1
    assert right(1.0) < 0.7 < right(0.1)
    always = procedural.Teacher(source, {family: 1.0}, 3)
    said = [always(item, i) for i, item in enumerate(items)]
    assert said == [always(item, i) for i, item in enumerate(items)]
    for item, text in zip(items, said, strict=True):
        if part(item) == family:
            assert text in known
        else:
            assert text == procedural.target_text(item)
