"""Answers of a model behind an OpenAI-compatible server; every reply is kept."""

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.evaluations.answers import Answer, Store
from experiments.evaluations.plan import Plan, opened
from vade_jax.data import images, prompts
from vade_jax.evals import chat as chats
from vade_jax.evals import endpoint, replies
from vade_jax.rollout.vllm.client import data_url
from vade_jax.types import Item


class Server:
    """Answers of `c.server`, each asked for by its own request and seed."""

    def __init__(self, c: ConfigDict, workdir: str):
        self._limits = {name: c.data[name] for name in ("min_pixels", "max_pixels")}
        self._instruction, self._seed = c.data.instruction, c.seed
        self._chat = chat(
            c.server, "server", os.path.join(workdir, "replies", "answers")
        )

    def check(self, plan: Plan, store: Store) -> None:
        """Asks for one word with this benchmark's settings.

        Raises:
          ValueError: the server refuses them, or an image.
        """
        message = self._message(plan.asked[0], "Reply with the word yes.")
        try:
            self._chat.ask([message], **_fields(plan, 0))
        except (chats.Unanswered, chats.ServerLost) as error:
            raise ValueError(
                f"the server does not take the requests of {plan.name} ({error}): correct "
                "server.fields, such as --config.server.fields={}"
            ) from error

    def ask(self, plan: Plan, store: Store) -> Iterator[int]:
        """Answers what the store lacks and yields how many each item takes; no reply leaves a gap.

        Raises:
          ServerLost: no question gets a reply any more.
        """
        todo = [item for item in plan.asked if _open(plan, store, item)]
        yield plan.num_samples * (len(plan.asked) - len(todo))
        answer = functools.partial(self._answers, plan, store)
        for answers in self._chat.map(answer, todo):
            store.add(answers)
            yield plan.num_samples

    def close(self) -> None:
        """Cuts off what is in flight."""
        self._chat.close()

    def _answers(self, plan: Plan, store: Store, item: Item) -> list[Answer]:
        """Returns what the store lacks of one item, as far as there are replies."""
        message, found = self._message(item, item.question), []
        for sample in _open(plan, store, item):
            seed = _seed(self._seed, item.uid, sample)
            try:
                reply = self._chat.reply([message], **_fields(plan, seed))
            except chats.Unanswered:
                continue
            found.append(_answer(item.uid, sample, reply))
        return found

    def _message(self, item: Item, text: str) -> dict[str, Any]:
        """Returns the user's turn with the pixels that the built-in engine would see."""
        pictures = opened(item).images
        try:
            pixels = [images.load(picture, **self._limits) for picture in pictures]
        except ValueError as error:
            raise ValueError(f"{item.uid}: {error}") from error
        urls = [data_url(image) for image in pixels]
        text = "\n".join(filter(None, (text, self._instruction)))
        return prompts.message(text, urls)


def _answer(uid: str, sample: int, reply: Any) -> Answer:
    return Answer(
        uid=uid,
        sample=sample,
        text=endpoint.text(reply),
        num_tokens=endpoint.num_tokens(reply),
        finished=endpoint.finished(reply),
    )


def _open(plan: Plan, store: Store, item: Item) -> list[int]:
    """Returns the samples of an item that the store lacks."""
    samples = range(plan.num_samples)
    return [g for g in samples if (item.uid, g) not in store.answers]


def chat(c: ConfigDict, name: str, memory: str) -> chats.Chat:
    """Returns what asks the server of `c`, once it has replied to a word.

    Args:
      c: a server's fields in the config.
      name: of that section, for errors.
      memory: path of the replies, without its ending.

    Raises:
      ValueError: a field is wrong, or there is no such server, model or key.
    """
    if not c.model:
        raise ValueError(f"{name}.model is empty: give the name it is served under")
    server = endpoint.Endpoint(
        c.url, c.model, api_key=_key(c, name), timeout_s=c.timeout_s
    )
    kept = replies.Replies(f"{memory}.jsonl")
    if kept.damaged:
        print(f"{kept.damaged} replies of before cannot be read and are asked again")
    made = chats.Chat(
        server,
        kept,
        fields=fields(c, name),
        concurrency=c.concurrency,
        retries=c.retries,
    )
    server.check()
    return made


def fields(c: ConfigDict, name: str) -> dict[str, Any]:
    """Returns what goes into every request of a server."""
    try:
        found = json.loads(c.fields)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(
            f'{name}.fields={c.fields!r} is no JSON object like {{"top_k": 20}}'
        )
    return found


def _key(c: ConfigDict, name: str) -> str:
    if c.api_key_env and not os.environ.get(c.api_key_env):
        raise ValueError(
            f"{name}.api_key_env={c.api_key_env!r}: there is no such variable in the "
            f"environment: export {c.api_key_env}=KEY"
        )
    return os.environ[c.api_key_env] if c.api_key_env else ""


def _seed(seed: int, uid: str, sample: int) -> int:
    """Returns 31 bits of its own for each answer: no two requests are one by chance."""
    text = f"{seed} {uid} {sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def _fields(plan: Plan, seed: int) -> dict[str, Any]:
    drawn = plan.sampling
    return {
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
        "max_tokens": drawn.max_tokens,
        "seed": seed,
    }
