r"""Writes other wordings of your questions, and hints to them, as a language model makes them.

    python -m experiments.make_variants --source=train.jsonl --target=train_variants.jsonl \
        --server=http://localhost:8000 --model=Qwen/Qwen2.5-VL-72B-Instruct

Every usable row of the source is written with two more columns: `paraphrases`, wordings that the
server, given the images, answers as the gold says (in most of --tries answers; with 0 they are
trusted), and `steps`, hints from a solution of the server's own that ends in the gold, cut before the
first that states it. What was not kept is listed with its reason in TARGET_replies/rejects.jsonl, the
raw replies are in TARGET_replies/replies.jsonl: run again, it asks only what has no reply yet.
"""

import functools
import json
import os
import pathlib
import sys
from typing import Any

from absl import app, flags

from experiments import errors
from vade_jax.evals import chat as chats
from vade_jax.evals import endpoint, replies
from vade_jax.recipes.diva import offline


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
            f"{offline.replies_directory(target)} are used again)"
        )


def main(_) -> None:
    """Makes what the flags ask for."""
    target = TARGET.value
    with errors.user_errors():
        wanted = offline.Wanted(**{n: flag.value for n, flag in WANTED.items()})
        _check_target(target)
        source = offline.open_source(SOURCE.value)
        memory = replies.Replies(offline.replies_directory(target) / "replies.jsonl")
        key, timeout_s = _key(API_KEY_ENV.value), TIMEOUT_S.value
        server = endpoint.Endpoint(
            SERVER.value, MODEL.value, api_key=key, timeout_s=timeout_s
        )
        limits = {"concurrency": CONCURRENCY.value, "retries": RETRIES.value}
        chat = chats.Chat(server, memory, fields=_fields(FIELDS.value), **limits)
        server.check()
    if memory.damaged:
        print(f"{memory.damaged} replies of before cannot be read and are asked again")
    try:
        report = offline.write(source, target, chat, wanted)
    except (chats.ServerLost, KeyboardInterrupt) as error:
        sys.exit(
            f"error: {str(error) or 'stopped'}; {len(memory):,} replies are kept: run again "
            "to go on"
        )
    print(report.table(chat.counts()))
    listing = offline.replies_directory(target) / "rejects.jsonl"
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
