"""The contact sheet shows good rows and survives bad ones."""

import numpy as np
from PIL import Image

from tests.report.pictures_test import damaged_image
from vade_jax import types
from vade_jax.data import columns, procedural
from vade_jax.report import contact_sheet


class _Broken:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 0:
            raise columns.RejectedItem("u", "bad_image", "cannot be opened")
        images = (damaged_image(),) if index == 1 else ()
        return types.Item(uid="t", question="?", images=images, answer="1", kind="int")


def test_a_sheet_has_a_tile_for_every_sample(tmp_path):
    path = tmp_path / "new" / "sheet.png"
    contact_sheet.draw(procedural.Procedural(0, 50), path, count=7, columns=3)
    sheet = np.asarray(Image.open(path))
    assert sheet.shape == (3 * 292, 3 * 240, 3)
    assert (sheet[:292, :240] != 255).any() and (sheet[-292:, 240:] == 255).all()


def test_rejected_rows_and_rows_without_images_are_shown(tmp_path):
    contact_sheet.draw(_Broken(), tmp_path / "sheet.png")
    assert (np.asarray(Image.open(tmp_path / "sheet.png")) != 255).any()
