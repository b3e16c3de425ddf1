"""Files as a user would write them."""

import io
import json

from PIL import Image


def png() -> bytes:
    """Returns the file of a red picture."""
    file = io.BytesIO()
    Image.new("RGB", (30, 40), "red").save(file, "PNG")
    return file.getvalue()


def write_jsonl(path, *rows) -> str:
    """Writes rows, or lines as they are, and returns the path."""
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return str(path)
