r"""Lets a language model paraphrase your questions and write hints for them.

    python -m experiments.make_variants --source=train.jsonl --target=train_variants.jsonl \
        --server=http://localhost:8000 --model=Qwen/Qwen2.5-VL-72B-Instruct

Every usable row of the source is written with two more columns. `paraphrases` are other wordings for which
most of --tries answers of the server, with the images, are right (with 0 tries all are kept). `steps` are
hints from a solution that the server wrote and that ends in the gold, up to the first hint that states the
gold. TARGET_replies/rejects.jsonl lists what was not kept, with reasons, and TARGET_replies/replies.jsonl has
the raw replies: a second call asks only questions without a reply.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import ClassVar

from absl import app, flags

from experiments import commands, errors
from experiments.diva import offline
from experiments.evals import chat as chats
from experiments.evals import settings
from vade_jax.data import sources
from vade_jax.run.directory import own


class Server(settings.Server):
    """The flags that describe the server."""

    path: ClassVar[str] = "--"  # before their names, in messages


def main(_: Sequence[str]) -> None:
    """Makes the variants that the flags ask for."""
    target = TARGET.value
    directory = offline.replies_directory(target)
    with errors.user_errors():
        requested = offline.Wanted(**{name: flag.value for name, flag in WANTED.items()})
        if pathlib.Path(target).suffix != ".jsonl":
            raise ValueError(f"--target={target}: give a file that ends in .jsonl")
        if os.path.exists(target):
            raise ValueError(
                f"--target={target} exists: remove it or name another (the replies in "
                f"{directory} are used again)"
            )
        server = Server(**{name: flag.value for name, flag in SERVER.items()})
        source = sources.rows(SOURCE.value, kind=KIND.value)
        owned = own(str(directory), "--target")
    with owned:  # two processes would write into one file
        with errors.user_errors():
            chat = chats.Chat(server, directory / "replies.jsonl")
            chat.check()
        try:
            report = offline.write(source, target, chat, requested)
        except (chats.ServerLost, KeyboardInterrupt) as error:
            why = f"error: {str(error) or 'stopped'}"
            sys.exit(f"{why}; {len(chat.replies):,} replies are kept: run again to continue")
    print(report.table(chat.counts()))
    listing = directory / "rejects.jsonl"
    if not report.kept.total():
        sys.exit(f"error: nothing was kept, so {target} is not written: see {listing}")
    print(f"in {target}; rejects in {listing}")


if __name__ == "__main__":
    text, number, default = flags.DEFINE_string, flags.DEFINE_integer, offline.Wanted()
    SOURCE = flags.DEFINE_string(
        "source", None, "The rows, as data.train takes them.", required=True
    )
    TARGET = flags.DEFINE_string("target", None, "A new .jsonl file.", required=True)
    KIND = text("kind", "", "The kind of answers that could be of several, as in data.kind.")
    SERVER = {
        "url": text("server", None, "URL of an OpenAI-compatible server.", required=True),
        "model": text("model", None, "The model's name on the server.", required=True),
        "api_key_env": text("api_key_env", "", "The environment variable that holds the API key."),
        "fields": text("fields", "{}", "JSON put into every request; a null takes a field out."),
        "concurrency": number("concurrency", 16, "Requests at once."),
    }
    WANTED = {
        "paraphrases": number("paraphrases", default.paraphrases, "Paraphrases of a question."),
        "steps": number("steps", default.steps, "Hints to a question, at most."),
        "tries": number("tries", default.tries, "Answers to a paraphrase; 0: it is trusted."),
        "temperature": flags.DEFINE_float("temperature", default.temperature, "Of all replies."),
        "max_tokens": number("max_tokens", default.max_tokens, "The most tokens of a reply."),
    }
    app.run(main, flags_parser=commands.parse)
