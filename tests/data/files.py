"""Files as a user would write them."""

import io
import json

from PIL import Image

from vade_jax.data import images


def png() -> bytes:
    """Returns the file of a red picture."""
    file = io.BytesIO()
    Image.new("RGB", (30, 40), "red").save(file, "PNG")
    return file.getvalue()


def write_jsonl(path, *rows) -> str:
    """Writes rows, or lines as they are, and returns the path."""
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return str(path)


def patches(image, patch):
    """Returns uint8 [num_patches, E], ordered by cells: four consecutive patches become one token.

    The published processor's `pixel_values` are these patches, normalised, with each channel's patch twice.
    """
    rows, cols = images.grid(image, patch)
    blocks = image.reshape(rows, 2, patch, cols, 2, patch, 3)
    return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3 * patch * patch)
