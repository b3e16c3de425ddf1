"""Small files in the exact schemas of published training data."""

import io
import json

import pyarrow as pa
from PIL import Image, ImageDraw
from pyarrow import parquet

TEXT, WHOLE = pa.string(), pa.int64()
IMAGE = pa.struct({"bytes": pa.binary(), "path": TEXT})
TURN = pa.struct({"from": TEXT, "value": TEXT})
MESSAGE = pa.struct({"role": TEXT, "content": TEXT})
LLAVA = pa.schema(
    {"id": TEXT, "image": IMAGE, "conversations": pa.list_(TURN), "data_source": TEXT}
)
CHARTQA = pa.schema(
    {"image": IMAGE, "query": TEXT, "label": pa.list_(TEXT), "human_or_machine": WHOLE}
)
TEXTS = ("hint", "task", "grade", "subject", "topic", "category", "skill", "lecture", "solution")
SCIENCEQA = pa.schema(
    {
        **{"image": IMAGE, "question": TEXT, "choices": pa.list_(TEXT), "answer": pa.int8()},
        **dict.fromkeys(TEXTS, TEXT),
    }
)
VERL = pa.schema(
    {
        "data_source": TEXT,
        "prompt": pa.list_(MESSAGE),
        "images": pa.list_(IMAGE),
        "ability": TEXT,
        "reward_model": pa.struct({"style": TEXT, "ground_truth": TEXT}),
        "extra_info": pa.struct({"index": WHOLE, "split": TEXT}),
    }
)
EASYR1 = pa.schema({"images": pa.list_(IMAGE), "problem": TEXT, "answer": TEXT})


def picture(number=0, form="PNG", mode="RGB", size=(60, 40), **options) -> bytes:
    """A picture that no other number has."""
    image = Image.new(mode, size)
    draw = ImageDraw.Draw(image)
    for bit in range(16):
        x, y = 15 * (bit % 4), 10 * (bit // 4)
        if number >> bit & 1:
            fill = 255 if mode == "L" else (255,) * len(mode)
            draw.rectangle((x, y, x + 14, y + 9), fill=fill)
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def rotated() -> bytes:
    """A JPEG of 112 x 56 that is to be shown as 56 x 112."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return picture(9, "JPEG", size=(112, 56), exif=exif)


def struct(data):
    return None if data is None else {"bytes": data, "path": None}


def llava(name, *turns, image=b""):
    """A row of (question, answer) turns; the first has the mark."""
    said = [
        {"from": who, "value": text}
        for pair in turns
        for who, text in zip(("human", "gpt"), pair, strict=True)
    ]
    if said:
        said[0]["value"] = "<image>\n" + said[0]["value"]
    data = picture(hash_of(name)) if image == b"" else image
    row = {"id": name, "image": struct(data), "conversations": said}
    return row | {"data_source": "x"}


def hash_of(name):
    return sum(ord(c) * (i + 7) for i, c in enumerate(str(name))) % 65536


def chartqa(query, label, image=None):
    image = picture(hash_of(query)) if image is None else image
    label = label if isinstance(label, list) else [label]
    return {"image": struct(image), "query": query, "label": label} | {"human_or_machine": 0}


def scienceqa(question, choices, answer, image=b"", hint=""):
    row = {"image": struct(picture(hash_of(question)) if image == b"" else image)}
    row |= {"question": question, "choices": choices, "answer": answer}
    return row | dict.fromkeys(TEXTS, "") | {"hint": hint}


def verl(content, truth, image=b"", system=False):
    turns = [{"role": "system", "content": "Be good."}] * system
    turns += [{"role": "user", "content": content}]
    images = [struct(picture(hash_of(content)) if image == b"" else image)]
    return {
        "data_source": "x",
        "prompt": turns,
        "images": images,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 0, "split": "train"},
    }


def write_parquet(path, schema, *rows, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows), schema), path, **options)
    return path


def write_stream(path, schema, *rows):
    """As Hugging Face's datasets keep them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_stream(path, schema) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema))
    return path


def write_jsonl(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
