"""Every setting of an evaluation: its default, meaning, unit and range, written once.

`Evaluation` is a tree of frozen dataclasses like `vade_jax.settings.Run`, and shares the sections of a run
that mean the same. Values that depend on files or servers are checked when those are read.

    settings.Evaluation.from_dict({"model": {"checkpoint": "a"}, "benchmarks": {"chartqa": "b.parquet"}})

0 and "" mean "none", because a command line cannot express None.
"""

import dataclasses
import json
import operator
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from experiments.evals.benchmarks import BENCHMARKS, PAPER, base
from vade_jax import fields, settings
from vade_jax.fields import Section, check_url, choice, location, mapping, number


@dataclasses.dataclass(frozen=True)
class Model(Section):
    """A checkpoint that answers."""

    path: ClassVar[str] = "model."

    checkpoint: str = location()  # a run directory, or a Hugging Face directory
    dtype: str = choice("auto", "float32", "bfloat16")  # of the computation


@dataclasses.dataclass(frozen=True)
class Server(Section):
    """A model behind a server that speaks OpenAI's chat API, which answers."""

    path: ClassVar[str] = "server."

    url: str = ""
    model: str = ""  # the name it is served under
    api_key_env: str = ""  # the environment variable that holds the key
    # JSON put into every request; a null takes a field out. vLLM takes these two, APIs take {}
    fields: str = '{"top_k": -1, "repetition_penalty": 1.0}'
    concurrency: int = number(16, at_least=1)  # requests at once
    retries: int = number(5, at_least=0)  # of a question
    timeout_s: float = number(300.0, above=0)  # the longest wait for a reply

    def __post_init__(self):
        super().__post_init__()
        if self.url and not self.model:
            raise ValueError(f"{self.path}model is empty: give the name it is served under")
        if self.url:
            check_url(f"{self.path}url", self.url)
        self.request_fields()

    def request_fields(self) -> dict[str, Any]:
        """Returns what goes into every request."""
        try:
            parsed = json.loads(self.fields)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ValueError(
                f'{self.path}fields={self.fields!r} is not a JSON object like {{"top_k": 20}}'
            )
        return parsed


@dataclasses.dataclass(frozen=True)
class Judge(Server):
    """A judge model behind a server, for the benchmarks that need one."""

    path: ClassVar[str] = "judge."

    fields: str = "{}"
    rules: bool = False  # True: no judge; our own rules where the benchmark has none


@dataclasses.dataclass(frozen=True)
class Sampling(Section):
    """How answers are drawn where the benchmark's protocol samples; other protocols are greedy."""

    path: ClassVar[str] = "sampling."

    temperature: float = number(1.0, at_least=0)  # the paper says nothing
    top_p: float = number(1.0, above=0, at_most=1)
    top_k: int = number(0, at_least=0)  # of a checkpoint; a server's is in its fields
    num_samples: int = number(0, at_least=0)  # answers to an item; 0: the protocol's, 4
    max_tokens: int = number(0, at_least=0)  # of an answer; 0: the protocol's, 2048


@dataclasses.dataclass(frozen=True)
class Data(Section):
    """How questions become prompts, as `settings.Data` has it."""

    path: ClassVar[str] = "data."

    template: Mapping[str, Any] = mapping()  # given to the chat template
    min_pixels: int = number(
        settings.Data.min_pixels, at_least=1568, why="as an image has at least two cells of 28 x 28"
    )
    max_pixels: int = settings.Data.max_pixels
    max_prompt_length: int = number(settings.Data.max_prompt_length, at_least=1)
    length_multiple: int = number(settings.Data.length_multiple, at_least=1)


@dataclasses.dataclass(frozen=True)
class Evaluation(Section):
    """All settings of an evaluation."""

    # The paper's protocols; or cot: the policy reasons and boxes its answer
    profile: str = choice("paper", *base.PROFILES)
    benchmarks: Mapping[str, str] = mapping(**dict.fromkeys(BENCHMARKS, ""))  # files
    num_items: int = number(0, at_least=0)  # the first of each, to try out; 0: all
    seed: int = fields.seed()
    compare: tuple[str, ...] = ()  # directories of other evaluations of the same items
    allow_missing: bool = False  # True: items without an answer are wrong and counted

    # Who answers: either `model.checkpoint` or `server.url`.
    model: Model = Model()
    server: Server = Server()

    sampling: Sampling = Sampling()
    judge: Judge = Judge()
    data: Data = Data()
    engine: settings.Engine = field(default_factory=settings.Engine)
    layout: settings.Layout = field(default_factory=settings.Layout)
    mesh: settings.Mesh = field(default_factory=settings.Mesh)

    def __post_init__(self):
        super().__post_init__()
        if unknown := [name for name in self.benchmarks if name not in BENCHMARKS]:
            raise ValueError(f"benchmarks.{unknown[0]}: known are {', '.join(BENCHMARKS)}")
        files = {name: os.path.expanduser(x) for name, x in self.benchmarks.items()}
        object.__setattr__(self, "benchmarks", files)
        object.__setattr__(self, "compare", tuple(map(os.path.expanduser, self.compare)))
        if self.data.min_pixels > self.data.max_pixels:
            raise ValueError(
                f"data.min_pixels={self.data.min_pixels} is larger than data.max_pixels="
                f"{self.data.max_pixels}"
            )
        if self.judge.rules and self.judge.url:
            raise ValueError("--rules and --judge_server given: one of them judges, give it alone")
        # Does nothing where a server builds the prompts
        for name in ("sampling.top_k", "data.template", "data.max_prompt_length"):
            value_of = operator.attrgetter(name)
            if self.server.url and value_of(self) != value_of(Evaluation()):
                raise ValueError(
                    f"{name}={value_of(self)} does nothing with --server: vLLM takes top_k and "
                    "chat_template_kwargs in server.fields, and is started with --max-model-len"
                )

    def check_complete(self) -> None:
        """Raises ValueError unless one policy is given, and a file of one benchmark at least."""
        if bool(self.model.checkpoint) == bool(self.server.url):
            raise ValueError("give either --checkpoint or --server")
        if not any(self.benchmarks.values()):
            raise ValueError(
                "no benchmark has a file: give one at least, such as "
                "--config.benchmarks.mathvista=testmini.parquet"
            )

    @property
    def skipped(self) -> list[str]:
        """The paper's benchmarks that have no file."""
        return [name for name in PAPER if not self.benchmarks.get(name)]
