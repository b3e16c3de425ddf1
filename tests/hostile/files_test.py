"""Data files and checkpoints that somebody has damaged, or made to do harm.

A row is an item or a reject that is counted by its reason; a file is rows or one clear error. Nothing
crashes, leaves the directory, hangs or fills the memory.
"""

import base64
import io
import json
import os
import shutil
import struct
import zlib

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.cpu_limit import cpu_limit
from vade_jax.data import columns, images, prompts, sources, tokens
from vade_jax.models.qwen import files

SECONDS = 10  # of work that a file or a row may cost
GOOD = {"question": "How many?", "answer": "7"}
DEEP = 100_000


@pytest.fixture(scope="module")
def builder(small_checkpoint):
    tokenizer = tokens.Tokenizer.load(small_checkpoint)
    limits = {"min_pixels": 56 * 56, "max_pixels": 112 * 112, "max_length": 512}
    return prompts.PromptBuilder(tokenizer, instruction="", **limits)


def audit(path, builder, **options):
    """Returns what becomes of each row of a file."""
    with cpu_limit(SECONDS):
        source = sources.rows(path, **options)
        kept, _, rejects = prompts.audit(source, builder)
    assert len(kept) + len(rejects) == len(source)
    listed = {row["index"]: row["reason"] for row in rejects}
    assert len(json.dumps(rejects)) < 1_000 * (1 + len(rejects))
    return [listed.get(i, "ok") for i in range(len(source))]


# ------------------------------------------------------------------------------ images
def png(width, height, data=None, color=2):
    """Returns a file whose header says so much; by default it has no pixels."""
    chunk = lambda kind, x: (
        struct.pack(">I", len(x)) + kind + x + struct.pack(">I", zlib.crc32(kind + x))
    )
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    body = zlib.compress(b"" if data is None else data)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def encoded(form, size=(112, 112), **options):
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, form, **options)
    return file.getvalue()


def url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


PLAIN = encoded("PNG")
FLOOD = png(60_000, 60_000)
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n%%EndComments\n(x) (r) file\n%%EOF\n"
PICTURES = {
    "ok": [PLAIN, *(encoded(f) for f in ("JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")), png(99, 99, bytes(99 * 298))],
    "bad_image": [
        # Headers that promise what is not there, or what would fill the memory.
        FLOOD, png(7_500, 7_500, b"", 6), png(0, 0), png(2**31 - 1, 1), png(2**31 - 1, 2**31 - 1),
        png(99, 99), png(99, 99, bytes(50)), png(99, 99, color=77),
        png(6_000, 6_000, bytes(99)),
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 10**9, 0, 0, 54, 40, 50_000, 50_000, 1, 24, 0, 0, 0, 0, 0, 0),
        b"P6 99999 99999 255\n", b"GIF89a" + b"\xff" * 20,
        # What Pillow would hand to another program, or knows and nobody asked for.
        EPS, b"%PDF-1.4\n%%EOF", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"\x00\x00\x01\x00" + bytes(30),
        encoded("TGA"),
        # No picture.
        b"", b"no picture", *(PLAIN[:n] for n in (8, 50, len(PLAIN) // 2)), encoded("JPEG")[:400],
    ],
}  # fmt: skip


@pytest.mark.parametrize("reason", PICTURES)
def test_every_picture_is_shown_or_rejected(tmp_path, builder, reason):
    rows = [GOOD | {"images": [{"bytes": data, "path": None}]} for data in PICTURES[reason]]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert audit(tmp_path / "a.parquet", builder) == [reason] * len(rows)


def test_a_flood_of_pixels_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(Image.Image, "load", None)
    for data in (FLOOD, png(7_500, 7_500)):
        with pytest.raises(ValueError, match="pixels"):
            images.opened(data)


# ------------------------------------------------------------------------------ rows
FAR = "/" + "x" * 5_000
PATHS = (
    "../secret.png", "data/../../secret.png", "/etc/passwd", "link.png", "linked/secret.png", "loop.png",
    "/dev/zero", "/proc/self/mem", "pipe", "inner", ".", "none.png", "a.jsonl", "broken.png", FAR,
    "x\0.png", "~/x.png", "file:///etc/passwd", "http://localhost/x.png", "\ud800.png", "huge.png",
)  # fmt: skip
ROWS = {
    "ok": [
        {}, {"answer": 7.0, "kind": "int"}, {"id": 5}, {"images": ["inner/a.png", "inner/../inner/a.png"]},
        {"images": [url(PLAIN)]}, {"images": [None]}, {"choices": ["7", "8"]}, {"question": 5},
        {"question": "\x00\x1b[31m\u202e?"}, {"__class__": "x"}, {"tolerance": 0.5},
    ],
    "bad_row": [
        "{", "5", "null", '"text"', "[1]", "NaN", '{"question": "q"} {"answer": "7"}', '{"a":' * DEEP,
        '{"answer": ' + "9" * 5_000 + "}", '{"question": "\\ud8"}', "\x00", {"prompt": 5, "reward_model": 5},
    ],
    "missing_field": ["{}", '{"question": "q"}', {"question": None}, {"prompt": [[]], "reward_model": {}}],
    "bad_question": [{"question": x} for x in ([], {}, ["q"], {"q": 1}, float("nan"), float("inf"))],
    "empty_question": [{"question": x} for x in ("", "\n\t", "<image>", "<|im_end|>")],
    "too_long": [{"question": "many " * 10_000}, {"question": "x" * 20_000_000}, {"images": ["inner/a.png"] * 1_000}],
    "bad_text": [{"question": "\ud83d"}, {"question": "a\udc00b"}],
    "image_count": [{"question": "<image>?"}, {"question": "<image>" * 9 + "?", "image": "inner/a.png"}],
    "bad_answer": [
        *({"answer": x} for x in ([], {}, [7], {"a": 7}, "", "  ", float("nan"), float("inf"), -float("inf"))),
        {"answer": "seven", "kind": "int"}, {"answer": "1e999999", "kind": "float"}, {"answer": "perhaps", "kind": "yesno"},
        {"answer": "9^" * 50 + "9", "kind": "int"}, {"answer": "B", "kind": "choice", "choices": ["a"]},
    ],
    "bad_kind": [*({"kind": x} for x in ("sum", "__import__", 5, ["int"])), {"answer": "x" * 1_000_000}],
    "bad_id": [{"id": x} for x in ([], {}, ["a"], float("nan"), "x" * 100_000, "a\nb", "\x1b[31m", "\u202ea")],
    "bad_image": [
        *({"image": path} for path in PATHS), {"image": 5}, {"image": True}, {"images": [[]]}, {"images": {}},
        {"images": [{"bytes": "x"}]}, {"images": {"path": "../secret.png"}}, {"image": "data:image/png;base64,!!!"},
        {"image": url(FLOOD)}, {"image": url(EPS)}, {"images": [url(PLAIN), "../secret.png"]},
    ],
    "bad_choices": [{"choices": x} for x in ("ab", {}, [1], [None], [["a"]], 7)],
    "bad_tolerance": [{"tolerance": x} for x in ("5%", -1, 1, 2, float("nan"), float("inf"), [0.1], True)],
    "bad_ordered": [{"ordered": x} for x in ("yes", 1, [], {})],
    "bad_paraphrases": [{"paraphrases": x} for x in ("q", [1], {})],
    "bad_steps": [{"steps": x} for x in ("q", [1], {})],
    "bad_level": [{"level": x} for x in ([], {}, float("nan"))],
    "bad_subset": [{"subset": x} for x in ([], {}, float("nan"))],
}  # fmt: skip


def directory(tmp_path):
    """Returns a data set's directory with what its rows name, beside a picture that is not its own."""
    (tmp_path / "secret.png").write_bytes(PLAIN)
    home = tmp_path / "data"
    (home / "inner").mkdir(parents=True)
    (home / "inner" / "a.png").write_bytes(PLAIN)
    (home / "broken.png").write_bytes(PLAIN[:40])
    (home / "link.png").symlink_to("../secret.png")
    (home / "linked").symlink_to(tmp_path)
    (home / "loop.png").symlink_to("loop.png")
    os.mkfifo(home / "pipe")
    with (home / "huge.png").open("wb") as file:
        file.write(PLAIN)
        file.truncate(1 << 40)  # a hole of a terabyte
    return home


@pytest.mark.parametrize("reason", ROWS)
def test_every_row_is_an_item_or_a_counted_reject(tmp_path, builder, reason):
    path = directory(tmp_path) / "a.jsonl"
    lines = [x if isinstance(x, str) else json.dumps(GOOD | x) for x in ROWS[reason]]
    path.write_text("\n".join([json.dumps(GOOD), *lines]) + "\n", "utf-8")
    found = audit(path, builder)
    assert found == ["ok", *[reason] * len(ROWS[reason])], [
        (row, why) for row, why in zip(lines, found[1:], strict=True) if why != reason
    ][:3]


def test_a_directory_that_is_allowed_may_be_read(tmp_path, builder):
    path = directory(tmp_path) / "a.jsonl"
    rows = [
        GOOD | {"image": x} for x in ("../secret.png", "link.png", str(tmp_path / "secret.png"))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert audit(path, builder) == ["bad_image"] * 3
    assert audit(path, builder, image_root=str(tmp_path)) == ["ok"] * 3


def test_of_rows_with_one_id_the_first_is_taken(tmp_path, builder):
    path = tmp_path / "a.jsonl"
    rows = [GOOD | {"id": x} for x in ("a", "b", "a", 7, "7", "a")]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert audit(path, builder) == ["ok", "ok", "same_id", "ok", "same_id", "same_id"]


# ------------------------------------------------------------------------------ files of rows
def arrow_file(path, table):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


FORMS = {"a.arrow": arrow_file, "a.parquet": lambda path, table: parquet.write_table(table, path)}


def damaged(data, rng):
    """Returns a file cut off, or with a bit, or eight bytes, of something else."""
    place, kind = int(rng.integers(len(data))), rng.integers(4)
    if kind == 0:
        return data[:place]
    flipped = bytes([data[place] ^ 1 << int(rng.integers(8))])
    some = flipped if kind == 1 else bytes([0, 255][kind - 2 :][:1]) * 8
    return data[:place] + some + data[place + len(some) :]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.skipif(datasets.__version__ < "5.1", reason="before, it did not validate Arrow files")
def test_a_damaged_table_is_refused_or_its_rows_are(tmp_path, name):
    """A wrong offset would end the process."""
    rows = [GOOD | {"id": str(i), "images": [PLAIN], "choices": ["7"] * (i % 3)} for i in range(20)]
    FORMS[name](tmp_path / name, pa.Table.from_pylist(rows))
    whole, rng = (tmp_path / name).read_bytes(), np.random.default_rng(7)
    refused = 0
    for number in range(60):
        path = tmp_path / f"{number}_{name}"
        path.write_bytes(damaged(whole, rng))
        try:
            with cpu_limit(SECONDS):
                source = sources.rows(path)
                assert len(source) <= len(rows)
                for index in range(len(source)):
                    try:
                        source[index]
                    except columns.RejectedItem:
                        refused += 1
        except ValueError as error:
            assert "cannot be read" in str(error) or "has no" in str(error), error
            refused += 1
    assert refused >= 15


# ------------------------------------------------------------------------------ checkpoints
HUGE = 10**30
TEXTS = (
    "", "{", "[]", "null", "7", '"text"', "[" * DEEP, '{"a":' * DEEP, "\ufeff", "NaN", "9" * 5_000, "{}",
    '{"model_type": []}', '{"architectures": 7}', '{"architectures": []}', '{"architectures": [{}]}',
)  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path, small_checkpoint):
    """The directory of a checkpoint, to be damaged."""
    return shutil.copytree(small_checkpoint, tmp_path / "hf")


def refuses(load, checkpoint):
    """Loading it is one clear error of less than a page."""
    with cpu_limit(SECONDS), pytest.raises((ValueError, FileNotFoundError)) as caught:
        load(checkpoint)
    assert str(checkpoint) in str(caught.value) and len(str(caught.value)) < 2_000, caught.value


def test_a_config_of_something_else_is_refused(checkpoint):
    for text in TEXTS:
        (checkpoint / files.CONFIG).write_text(text)
        refuses(files.load, checkpoint)
    (checkpoint / files.CONFIG).write_bytes(b"\xff\xfe{}")
    refuses(files.load, checkpoint)


def tensors(header, size=None):
    """Returns a safetensors file of that header and 64 bytes; `size` is what it says of its length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + bytes(64)


def entry(dtype="F32", shape=(16,), offsets=(0, 64)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


HEADERS = [
    b"\0" * 7, b"\xff" * 64, tensors(b"", 2**63), tensors(entry(), 9), tensors(entry(), 10**6), tensors(b"[]"),
    tensors(b'{"x": ' * DEEP), tensors({"x": 7}),
    *(tensors(entry(offsets=x)) for x in ((0, 65), (4, 64), (-4, 60), (64, 0), (0, 2**64), (0, 60), (HUGE, HUGE), (0,), ())),
    *(tensors(entry(shape=x)) for x in ((17,), (15,), (-16,), (2**32, 2**32), (2**63, 2), (HUGE,), (1.5,), ("16",), (0,))),
    *(tensors(entry(dtype=x)) for x in ("I32", "F8", "", "f32", "BOOL", "F4", None, 7, "O", "F64", "U8", "I64")),
    tensors(entry() | {"y": entry()["x"]}), tensors(entry() | {"y": entry(offsets=(60, 124))["x"]}),
    tensors(b'{"x": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}, "x": 7}'),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HEADERS)))
def test_weights_whose_header_lies_are_refused(checkpoint, number):
    (checkpoint / files.SINGLE).write_bytes(HEADERS[number])
    refuses(files.load, checkpoint)


MAPS = [7, [], None, *({"x": x} for x in (7, "", ".", "..", "/etc/passwd", "a/b", "\0"))]


def test_an_index_that_leads_elsewhere_is_refused(checkpoint):
    (checkpoint / files.SINGLE).unlink()  # beside it no index is read
    for weights in MAPS:
        (checkpoint / files.INDEX).write_text(json.dumps({"weight_map": weights}))
        refuses(files.load, checkpoint)
    for text in TEXTS:
        (checkpoint / files.INDEX).write_text(text)
        refuses(files.load, checkpoint)


TEMPLATES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ messages.__init__.__globals__ }}", "{{ range(10**9) }}",
    "{% include '/etc/passwd' %}", "{% import 'os' as os %}{{ os.getcwd() }}", "{{ cycler.__init__.__globals__.os }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
)  # fmt: skip


def test_a_hostile_template_reads_nothing_and_is_refused_or_renders_text(checkpoint):
    """It is a program, in a sandbox: what it may do is to render text."""
    for text in TEMPLATES:
        (checkpoint / "chat_template.jinja").write_text(text)
        with cpu_limit(SECONDS):
            try:
                tokenizer = tokens.Tokenizer.load(checkpoint)
                shown = tokenizer.render([{"role": "user", "content": "q"}])
            except ValueError as error:
                assert len(str(error)) < 1_000
            else:
                assert "root:" not in shown and "uid=" not in shown and "<class" not in shown, text
