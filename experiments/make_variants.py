r"""Writes other wordings of your questions, and hints to them, as a language model makes them.

    python -m experiments.make_variants --source=train.jsonl --target=train_variants.jsonl \
        --server=http://localhost:8000 --model=Qwen/Qwen2.5-VL-72B-Instruct

Every usable row of the source is written with two more columns: `paraphrases`, wordings that the
server, given the images, answers as the gold says (in most of --tries answers; with 0 they are
trusted), and `steps`, hints from a solution of the server's own that ends in the gold, cut before the
first that states it. What was not kept is listed with its reason in TARGET_replies/rejects.jsonl, the
raw replies are in TARGET_replies/replies.jsonl: run again, it asks only what has no reply yet.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import tqdm
from absl import app, flags

from experiments import errors, variant_rows
from vade_jax.data import sources
from vade_jax.evals import chat as chats
from vade_jax.evals import endpoint, replies


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a file.

    Attributes:
      num_rows: written.
      kept: variants in them, by column.
      rejected: all others, by (column, or "row"; reason).
    """

    num_rows: int
    kept: collections.Counter
    rejected: collections.Counter


def make(
    source: sources.Rows, target: str, chat: chats.Chat, wanted: variant_rows.Wanted
) -> Report:
    """Writes `target` whole, or not at all if it has no variant.

    Raises:
      ServerLost: of `chat`; a later call with its memory goes on from there.
    """
    directory = replies_directory(target)
    report = Report(0, collections.Counter(), collections.Counter())
    work = functools.partial(
        variant_rows.make, source, chat, wanted, pathlib.Path(target).absolute().parent
    )
    building = directory / "rows.tmp"
    with (
        building.open("w") as rows,
        (directory / "rejects.jsonl").open("w") as rejects,
        contextlib.closing(chat.map(work, range(len(source)))) as done,
    ):
        bar = tqdm.tqdm(done, total=len(source), unit=" rows")
        for index, made in enumerate(bar):
            report = _counted(report, made, wanted)
            if made.row is not None:
                rows.write(_line(made.row))
            for column, reason, detail in made.rejects:
                why = {"column": column, "reason": reason, "detail": detail}
                rejects.write(_line({"index": index, "uid": made.uid, **why}))
    if report.kept.total():
        os.replace(building, target)
    else:
        building.unlink()
    return report


def open_source(source: str) -> sources.Rows:
    """Returns the rows of a file that can be written again as JSON.

    Raises:
      ValueError: it is no such file, or has columns that JSON cannot hold.
    """
    opened = sources.rows(source, all_columns=True)
    for index in range(len(opened)):
        try:
            opened[index]
        except sources.RejectedItem:
            continue
        variant_rows.portable(opened, index, opened.directory)
        break
    return opened


def replies_directory(target: str) -> pathlib.Path:
    """Returns where replies and rejects of a target are kept."""
    path = pathlib.Path(target)
    return path.with_name(f"{path.stem}_replies")


def _line(row):
    return json.dumps(row, ensure_ascii=False) + "\n"


def _counted(report, made, wanted):
    report.rejected.update((column, reason) for column, reason, _ in made.rejects)
    if made.row is None:
        return report
    for column in variant_rows.COLUMNS:
        if getattr(wanted, column):
            report.kept[column] += len(made.row[column])
    return dataclasses.replace(report, num_rows=report.num_rows + 1)


# ------------------------------------------------------------------------------ the command
def table(report: Report, counts: Mapping[str, int]) -> str:
    """Returns what was kept and rejected, by reason, and how the questions went."""
    kept = {"row": report.num_rows} | {
        column: report.kept[column] for column in variant_rows.COLUMNS
    }
    lines = []
    for column, number in kept.items():
        reasons = {why: n for (of, why), n in report.rejected.items() if of == column}
        listed = ", ".join(f"{why} {n:,}" for why, n in sorted(reasons.items()))
        lines.append(f"{column:12} {number:>8,} kept   rejected: {listed or 'none'}")
    asked = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    return "\n".join([*lines, f"{'questions':12} {asked}"])


def _key(variable: str) -> str:
    if variable and not os.environ.get(variable):
        raise ValueError(
            f"--api_key_env={variable}: there is no such variable in the environment: "
            f"export {variable}=KEY"
        )
    return os.environ[variable] if variable else ""


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f'--fields={text}: is no JSON object like {{"top_p": 0.9}}')
    return found


def _check_target(target: str) -> None:
    path = pathlib.Path(target)
    if path.suffix != ".jsonl":
        raise ValueError(f"--target={target}: give a file that ends in .jsonl")
    if path.exists():
        raise ValueError(
            f"--target={target} exists: remove it or name another (the replies in "
            f"{replies_directory(target)} are used again)"
        )


def _chat(memory: replies.Replies) -> chats.Chat:
    server = endpoint.Endpoint(
        SERVER.value,
        MODEL.value,
        api_key=_key(API_KEY_ENV.value),
        timeout_s=TIMEOUT_S.value,
    )
    chat = chats.Chat(
        server,
        memory,
        fields=_fields(FIELDS.value),
        concurrency=CONCURRENCY.value,
        retries=RETRIES.value,
    )
    server.check()
    return chat


def main(_) -> None:
    """Makes what the flags ask for."""
    target = TARGET.value
    with errors.user_errors():
        wanted = variant_rows.Wanted(**{n: flag.value for n, flag in WANTED.items()})
        _check_target(target)
        source = open_source(SOURCE.value)
        memory = replies.Replies(replies_directory(target) / "replies.jsonl")
        chat = _chat(memory)
    if memory.damaged:
        print(f"{memory.damaged} replies of before cannot be read and are asked again")
    try:
        report = make(source, target, chat, wanted)
    except (chats.ServerLost, KeyboardInterrupt) as error:
        sys.exit(
            f"error: {str(error) or 'stopped'}; {len(memory):,} replies are kept: run again "
            "to go on"
        )
    print(table(report, chat.counts()))
    listing = replies_directory(target) / "rejects.jsonl"
    if not report.kept.total():
        sys.exit(f"error: nothing was kept, so {target} is not written: see {listing}")
    print(f"in {target}; rejects in {listing}")


if __name__ == "__main__":
    define = functools.partial(flags.DEFINE_string, required=True)
    SOURCE = define("source", None, "A .jsonl or .parquet file, or a directory.")
    TARGET = define("target", None, "A new .jsonl file.")
    SERVER = define("server", None, "URL of an OpenAI-compatible server.")
    MODEL = define("model", None, "The name it serves the model under.")
    API_KEY_ENV = flags.DEFINE_string(
        "api_key_env", "", "The environment variable that holds the API key."
    )
    FIELDS = flags.DEFINE_string(
        "fields", "{}", "JSON put into every request; a null takes a field out."
    )
    CONCURRENCY = flags.DEFINE_integer("concurrency", 16, "Requests at once.")
    RETRIES = flags.DEFINE_integer("retries", 5, "Of a question that fails.")
    TIMEOUT_S = flags.DEFINE_float("timeout_s", 300.0, "The longest wait for a reply.")
    WANTED = {
        "paraphrases": flags.DEFINE_integer("paraphrases", 5, "Of a question."),
        "steps": flags.DEFINE_integer("steps", 5, "Hints to a question, at most."),
        "tries": flags.DEFINE_integer(
            "tries", 3, "Answers to a paraphrase, most of them right; 0: it is trusted."
        ),
        "temperature": flags.DEFINE_float("temperature", 0.7, "Of the replies."),
        "max_tokens": flags.DEFINE_integer("max_tokens", 2048, "Of a reply."),
        "max_pixels": flags.DEFINE_integer("max_pixels", 1003520, "Of an image."),
    }
    app.run(main)
