"""The policies of an evaluation: a server, or an engine with a checkpoint's weights.

They are asked only for answers that the store lacks, so an interrupted evaluation continues.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.evals import chat, tasks
from experiments.evals.answers import Answer, Answers, Key
from experiments.evals.settings import Data
from experiments.evals.tasks import Task
from vade_jax import client, types
from vade_jax.data import images, prompts, tokens
from vade_jax.rollout.engine import Engine
from vade_jax.rollout.vllm.requests import data_url

CHUNK = 256  # prompts whose answers are saved together


def missing(task: Task, store: Mapping[Key, Answer], item: types.Item) -> list[int]:
    """Returns the samples of an item that the store lacks."""
    return [g for g in range(task.num_samples) if (item.uid, g) not in store]


# ------------------------------------------------------------------------------ a server
@dataclasses.dataclass(frozen=True)
class ServerPolicy:
    """A server that answers: each answer has its own request and seed."""

    chat: chat.Chat
    data: Data  # the sizes of pictures
    seed: int

    def record(self) -> dict[str, Any]:
        """Returns the description of the policy ("is"), and its "files", which may have other names."""
        server = self.chat.server
        identity = {"from": "server", "model": server.model, "fields": server.request_fields()}
        return {"is": identity, "files": {"server": server.url}}

    def check(self, task: Task, store: Answers) -> None:
        """Asks for one word in the form of the task, if an answer is missing; raises ValueError."""
        if not any(missing(task, store, item) for item in task.items):
            return
        message = self._message(task.asked[0], "Reply with the word yes.")
        try:
            self.chat.ask([message], **_request(task, seed=0))
        except (chat.Unanswered, chat.ServerLost) as error:
            raise ValueError(
                f"the server does not take the requests of {task.name} ({error}): correct "
                "server.fields, such as --config.server.fields={}"
            ) from error

    def ask(self, task: Task, store: Answers) -> Iterator[int]:
        """Generates the missing answers; yields the number of new ones.

        A question without a reply leaves a gap.

        Raises:
            ServerLost: no question gets a reply any more.
        """
        todo = [item for item in task.asked if missing(task, store, item)]
        yield task.num_samples * (len(task.asked) - len(todo))
        for answers in self.chat.map(lambda item: self._answers(task, store, item), todo):
            store.add(map(vars, answers))
            yield task.num_samples

    def close(self) -> None:
        """Cancels requests in flight."""
        self.chat.close()

    def _answers(self, task: Task, store: Answers, item: types.Item) -> list[Answer]:
        """Returns the missing answers to one item, as far as there are replies."""
        message, answers = self._message(item, item.question), []
        for sample in missing(task, store, item):
            # 31 bits for each answer, so that requests do not coincide by chance.
            digest = hashlib.sha256(f"{self.seed} {item.uid} {sample}".encode()).digest()
            request = _request(task, int.from_bytes(digest[:4]) >> 1)
            try:
                reply = self.chat.reply([message], **request)
            except chat.Unanswered:
                continue
            ends = {
                "stop": True,
                "length": False,
            }  # other values do not tell whether it was cut off
            finished = ends.get(reply["choices"][0].get("finish_reason"))
            text, usage = client.text_of(reply), reply.get("usage") or {}
            num_tokens = usage.get("completion_tokens")
            answers.append(Answer(item.uid, sample, text, num_tokens, finished))
        return answers

    def _message(self, item: types.Item, text: str) -> dict[str, Any]:
        """Returns the user's turn, with the pixels that a Qwen2.5-VL in the built-in engine would see.

        The server of a model with other patches resizes them once more.
        """
        sides = {"min_pixels": self.data.min_pixels, "max_pixels": self.data.max_pixels}
        try:
            pixels = [
                images.load(x, patch=images.PATCH, **sides) for x in tasks.opened(item).images
            ]
        except ValueError as error:
            raise ValueError(f"{item.uid}: {error}") from error
        return prompts.message(text, [data_url(image) for image in pixels])


def _request(task: Task, seed: int) -> dict[str, Any]:
    drawn = {name: getattr(task.sampling, name) for name in ("temperature", "top_p", "max_tokens")}
    return drawn | {"seed": seed}


# ------------------------------------------------------------------------------ an engine
@dataclasses.dataclass(frozen=True)
class EnginePolicy:
    """A rollout engine that answers, a chunk of prompts at a time.

    Each chunk has its own keys, so an interrupted evaluation continues with the same draws.
    """

    directory: str  # of the weights
    made_with: Mapping[str, str]  # the engine and its dtype
    tokenizer: tokens.Tokenizer
    build_prompt: Callable[[types.Item], types.Prompt]  # raises RejectedItem
    make_engine: Callable[[int], Engine]  # of answers an item; called when the first one is missing
    seed: int
    close: Callable[[], None]  # ends all engines that were made

    def record(self) -> dict[str, Any]:
        """Does what `ServerPolicy.record` does; reads all weights."""
        identity = {
            "from": "checkpoint",
            "sha256": tasks.sha256(self.directory),
            **self.made_with,
            "template": self.tokenizer.render([{"role": "user", "content": "QUESTION"}]),
        }
        return {"is": identity, "files": {"checkpoint": self.directory}}

    def check(self, task: Task, store: Answers) -> None:
        """Builds the prompt of every item that lacks an answer; raises ValueError."""
        for item in task.asked:
            if missing(task, store, item):
                self._build(task, item)

    def ask(self, task: Task, store: Answers) -> Iterator[int]:
        """Does what `ServerPolicy.ask` does; an incomplete chunk is answered again completely.

        Raises:
            EngineFailure: vLLM failed.
        """
        base = jax.random.key(self.seed)
        base = jax.random.fold_in(base, zlib.crc32(task.name.encode()))
        for start in range(0, len(task.asked), CHUNK):
            chunk = task.asked[start : start + CHUNK]
            if any(missing(task, store, item) for item in chunk):
                answers = self._answers(task, chunk, jax.random.fold_in(base, start))
                store.add(map(vars, answers))
            yield len(chunk) * task.num_samples

    def _answers(self, task: Task, chunk: Sequence[types.Item], key: jax.Array) -> list[Answer]:
        per_item = task.num_samples
        built = [self._build(task, item) for item in chunk]
        engine = self.make_engine(per_item)
        rollouts = engine.generate(built, np.full(len(built), per_item), key, 0, task.sampling)
        answers = []
        for n in np.flatnonzero(rollouts.valid_N):  # the others are missing
            length = int(rollouts.length_N[n])
            text = self.tokenizer.decode(np.asarray(rollouts.token_NT[n, :length]))
            uid, sample = built[n // per_item].uid, int(n % per_item)
            answers.append(Answer(uid, sample, text, length, bool(rollouts.finished_N[n])))
        return answers

    def _build(self, task: Task, item: types.Item) -> types.Prompt:
        return tasks.built(self.build_prompt, item, task.name)
