"""Small files in the exact schemas of the benchmarks."""

import io
import json

import pyarrow as pa
from PIL import Image
from pyarrow import parquet

from experiments.evals.benchmarks import BENCHMARKS


def picture(form="PNG", mode="RGB", size=(40, 30), **options) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 7).save(file, form, **options)
    return file.getvalue()


def struct(data: bytes | None = None) -> dict:
    return {"bytes": picture() if data is None else data, "path": None}


def mathvista(pid="1", **changes) -> dict:
    return {
        "pid": pid,
        "question": "How wide is the angle?",
        "image": f"images/{pid}.jpg",
        "decoded_image": struct(),
        "choices": ["135°", "140°", "145°", "150°"],
        "unit": None,
        "precision": None,
        "answer": "140°",
        "question_type": "multi_choice",
        "answer_type": "text",
        "metadata": {
            "split": "testmini",
            "language": "english",
            "source": "GEOS",
            "category": "math-targeted-vqa",
            "task": "geometry problem solving",
            "context": "geometry diagram",
            "grade": "high school",
            "skills": ["geometry reasoning", "algebraic reasoning"],
            "img_width": 40,
            "img_height": 30,
        },
        "query": "Hint: Answer by a letter.\nQuestion: How wide is the angle?\nChoices:\n(A) 135°",
    } | changes


def mathverse(sample_index="1", **changes) -> dict:
    return {
        "sample_index": sample_index,
        "problem_index": "1",
        "problem_version": "Text Dominant",
        "question": "Find x.\nChoices:\nA:40°\nB:50°",
        "image": struct(),
        "answer": "B",
        "question_type": "multi-choice",
        "metadata": {
            "split": "testmini",
            "source": "GeoQA",
            "subject": "Plane Geometry",
            "subfield": "Angle",
        },
        "query_wo": "Answer by a letter.\nQuestion: Find x.",
        "query_cot": "Reason, then answer by a letter.\nQuestion: Find x.",
        "question_for_eval": "Find x.\nChoices:\nA:40°\nB:50°",
    } | changes


def mathvision(id="1", **changes) -> dict:
    return {
        "id": id,
        "question": "How many?\n<image1>",
        "options": ["1", "2", "3", "4", "5"],
        "image": f"images/{id}.jpg",
        "decoded_image": struct(),
        "answer": "B",
        "solution": None,
        "level": 3,
        "subject": "counting",
    } | changes


def scienceqa(**changes) -> dict:
    return {
        "image": struct(),
        "question": "What colour?",
        "choices": ["red", "green", "blue"],
        "answer": 1,
        "hint": "",
        "task": "closed choice",
        "grade": "grade7",
        "subject": "natural science",
        "topic": "physics",
        "category": "light",
        "skill": "name colours",
        "lecture": "",
        "solution": "",
    } | changes


def chartqa(**changes) -> dict:
    return dict(type="human_test", question="How many?", answer="10", image=struct()) | changes


def item(tmp_path, name, **changes):
    """Returns the one item of a benchmark's file."""
    path = save(tmp_path / f"{name}.parquet", globals()[name](**changes))
    return BENCHMARKS[name].read(path)[0]


def save(path, *rows) -> str:
    """Writes rows as the name's ending says."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(list(rows)))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)
