"""What is asked in an evaluation: the items of each benchmark, how often, and how drawn."""

import dataclasses
import functools
import io
import os
from collections.abc import Sequence

from ml_collections import ConfigDict
from PIL import Image

from vade_jax import types
from vade_jax.evals import benchmarks
from vade_jax.rollout.engine import Sampling


@dataclasses.dataclass(frozen=True)
class Plan:
    """One benchmark of an evaluation.

    Attributes:
      benchmark: its rules.
      path: of its files.
      profile: "paper" or "cot".
      items: in the order of the files.
      num_samples: answers to each.
      sampling: how they are drawn; temperature 0 is greedy.
    """

    benchmark: benchmarks.Benchmark
    path: str
    profile: str
    items: Sequence[types.Item]
    num_samples: int
    sampling: Sampling

    @property
    def name(self) -> str:
        return self.benchmark.name

    @functools.cached_property
    def asked(self) -> list[types.Item]:
        """The items with the benchmark's whole prompt as their question; see `opened`."""
        prompt = self.benchmark.prompt
        return [
            dataclasses.replace(item, question=prompt(item, self.profile))
            for item in self.items
        ]

    @functools.cached_property
    def keys(self) -> list[tuple[str, int]]:
        """(uid, sample) of every answer that is wanted."""
        return [(i.uid, g) for i in self.items for g in range(self.num_samples)]


def opened(item: types.Item) -> types.Item:
    """Returns an item with images of its own to decode: a plan's stay small, in any thread."""
    images = [Image.open(io.BytesIO(image.fp.getvalue())) for image in item.images]
    return dataclasses.replace(item, images=tuple(images))


def make(c: ConfigDict) -> list[Plan]:
    """Returns the benchmarks that have files, read whole; says which have none.

    Raises:
      ValueError: there is none, or a file is not of its benchmark.
    """
    paths = {name: path for name, path in c.benchmarks.items() if path}
    if not paths:
        raise ValueError(
            "no benchmark has a file: give one at least, such as "
            "--config.benchmarks.mathvista=testmini.parquet"
        )
    for name, path in paths.items():
        if not os.path.exists(path):
            raise ValueError(f"benchmarks.{name}={path} does not exist")
    if skipped := skipped_of(c):
        print(f"without files, so skipped: {', '.join(skipped)}")
    plans = [_plan(c, benchmarks.BENCHMARKS[name], paths[name]) for name in paths]
    return sorted(plans, key=lambda plan: list(benchmarks.BENCHMARKS).index(plan.name))


def skipped_of(c: ConfigDict) -> list[str]:
    """Returns those of the paper's benchmarks that have no file."""
    return [name for name in benchmarks.PAPER if not c.benchmarks[name]]


def _plan(c: ConfigDict, benchmark: benchmarks.Benchmark, path: str) -> Plan:
    protocol, drawn = benchmark.protocols[c.profile], c.sampling
    if protocol.greedy:
        num_samples = protocol.num_samples
        sampling = Sampling(temperature=0.0, max_tokens=protocol.max_tokens)
    else:
        num_samples = drawn.num_samples or protocol.num_samples
        sampling = Sampling(
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            top_k=drawn.top_k,
            max_tokens=drawn.max_tokens or protocol.max_tokens,
        )
    items = benchmark.read(path)
    return Plan(
        benchmark=benchmark,
        path=path,
        profile=c.profile,
        items=items[: c.num_items or None],
        num_samples=num_samples,
        sampling=sampling,
    )
