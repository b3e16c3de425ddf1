"""An evaluation from its settings to its report: check all inputs, ask, score, write.

    prepared = evaluation.prepare(settings, workdir)
    evaluation.answer(prepared)
    evaluation.check_answers(prepared)
    print(evaluation.write_report(prepared))

Answers and the judge's replies are saved immediately. With the same settings and directory, an evaluation
continues where it stopped.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import tqdm

from experiments.evals import answers, chat, policies, results, summary, tasks
from experiments.evals.settings import Evaluation
from vade_jax import atomic
from vade_jax.data import hub, tokens
from vade_jax.models.qwen import files
from vade_jax.rollout.engine import Engine, Sampling
from vade_jax.run import engines, gpus
from vade_jax.store import run_file
from vade_jax.trainer import mesh, processes
from vade_jax.trainer import policy as trainer

Policy = policies.ServerPolicy | policies.EnginePolicy


@dataclasses.dataclass(frozen=True)
class Prepared:
    """An evaluation whose inputs have been checked."""

    settings: Evaluation
    workdir: str
    tasks: Sequence[tasks.Task]
    records: Mapping[str, Mapping]  # of each task: what comparable evaluations must share
    others: Mapping[str, summary.Results]  # to compare with, by directory
    policy: Policy
    stores: Mapping[str, answers.Answers]  # the answers so far, by task
    judge: chat.Chat | None  # None: rules decide alone

    @property
    def num_answers(self) -> int:
        """The number of answers so far."""
        return sum(len(store) for store in self.stores.values())


# ------------------------------------------------------------------------------ before the first answer
def prepare(evaluation: Evaluation, workdir: str) -> Prepared:
    """Reads all files, sends servers a test question, and builds every prompt once.

    Raises:
        ValueError: a setting, a file, a server or the directory of another evaluation is wrong; says
            what to do.
        FileNotFoundError: there is no such checkpoint.
    """
    evaluation.check_complete()
    chosen = tasks.read(evaluation)
    others = {path: results.load_all(path) for path in evaluation.compare}
    for path, other in others.items():
        summary.check_pair(path, other, chosen)
    paths = {task.name: pathlib.Path(workdir, task.name) for task in chosen}
    stores = {name: answers.open_store(path / answers.NAME) for name, path in paths.items()}
    # Servers are needed before the first answer, but not after the last one.
    asks = any(len(stores[task.name]) < len(task.keys) for task in chosen)
    judge = _make_judge(evaluation, chosen, workdir, asks)
    policy = _make_policy(evaluation, chosen, workdir, asks)
    record = policy.record()
    records = {task.name: tasks.record(evaluation, task, record) for task in chosen}
    for name, settings in records.items():
        path = paths[name] / "settings.json"
        if not stores[name]:
            path.unlink(missing_ok=True)  # no answer was made with them
        _claim(path, settings)
    for task in chosen:
        policy.check(task, stores[task.name])
    return Prepared(evaluation, workdir, chosen, records, others, policy, stores, judge)


def _claim(path: pathlib.Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of the answers; raises ValueError if existing answers had other settings."""
    if path.exists():
        old = json.loads(path.read_text())
        if others := run_file.differences(old, settings, tasks.MAY_CHANGE):
            raise ValueError(
                f"{path} is of other settings ({'; '.join(others)}): give another --workdir or the old values"
            )
    atomic.write_text(path, json.dumps(settings, indent=2) + "\n")


def _make_judge(
    evaluation: Evaluation, chosen: Sequence[tasks.Task], workdir: str, asks: bool
) -> chat.Chat | None:
    """Returns a chat with the judge; None if rules decide everything."""
    names = [task.name for task in chosen if task.benchmark.judge]
    if evaluation.judge.rules or not names:
        return None
    if not evaluation.judge.url:
        raise ValueError(
            f"{' and '.join(names)}: some answers take a judge: give --judge_server and "
            "--judge_model, or --rules for rules of our own (not the published scores)"
        )
    return _connect(evaluation.judge, workdir, "judge.jsonl", asks)


def _connect(server, workdir: str, name: str, asks: bool) -> chat.Chat:
    connected = chat.Chat(server, os.path.join(workdir, "replies", name))
    if asks:
        connected.check()
    return connected


def _make_policy(
    evaluation: Evaluation, chosen: Sequence[tasks.Task], workdir: str, asks: bool
) -> Policy:
    if evaluation.server.url:
        server = _connect(evaluation.server, workdir, answers.NAME, asks)
        return policies.ServerPolicy(server, evaluation.data, evaluation.seed)
    return _checkpoint_policy(evaluation, chosen, workdir)


def _checkpoint_policy(
    evaluation: Evaluation, chosen: Sequence[tasks.Task], workdir: str
) -> policies.EnginePolicy:
    """Returns the policy of a checkpoint, which reads its weights only when it answers.

    Raises:
        ValueError: it is not a checkpoint, or the engine cannot be started here.
    """
    if processes.several():
        raise ValueError(
            "an evaluation is one process: use vLLM servers, engine.name='vllm_server'"
        )
    directory = _weights(evaluation.model.checkpoint)
    files.check(directory)
    gpus.check(evaluation.layout, evaluation.engine)
    local, on_close = evaluation.engine.name == "local", contextlib.ExitStack()
    if local:
        gpus.take(evaluation.layout)
    else:  # JAX only makes keys here, and must leave the GPUs' memory to vLLM
        jax.config.update("jax_platforms", "cpu")
    shape, tokenizer = files.load_config(directory), tokens.Tokenizer.load(directory)
    sampling = Sampling(
        top_p=evaluation.sampling.top_p,
        top_k=evaluation.sampling.top_k,
        max_tokens=max(task.sampling.max_tokens for task in chosen),
    )

    @functools.cache
    def load() -> trainer.Policy:
        if local:
            devices = mesh.make(**evaluation.mesh.to_dict())
            dtype = trainer.compute_dtype(evaluation.model, devices)  # pyright: ignore[reportArgumentType] (it has what is read here)
            return trainer.place_policy(directory, devices, dtype)
        unused: dict[str, Any] = dict.fromkeys(
            ("merge", "whole", "params", "shardings", "mesh", "dtype")
        )
        return trainer.Policy(directory=directory, shape=shape, tokenizer=tokenizer, **unused)

    @functools.cache
    def make_engine(num_samples: int) -> Engine:
        section, data = evaluation.engine, evaluation.data
        if local:
            engine = engines.local(section, data, load(), sampling, num_samples)
        else:
            engine = engines.frozen_server(
                section, evaluation.layout, data, load(), workdir, sampling
            )
        on_close.callback(engine.close)
        return engine

    for cached in (load, make_engine):  # the caches hold the weights
        on_close.callback(cached.cache_clear)
    return policies.EnginePolicy(
        directory,
        {"engine": evaluation.engine.name, "dtype": evaluation.model.dtype},
        tokenizer,
        tasks.prompt_builder(evaluation.data, tokenizer),
        # The built-in engine depends on the group size; one server answers groups of any size.
        make_engine if local else lambda num_samples: make_engine(0),
        seed=evaluation.seed,
        close=on_close.close,
    )


def _weights(path: str) -> str:
    """Returns the Hugging Face directory of a path; of a run directory it is `policy`."""
    if os.path.exists(os.path.join(path, "policy", files.CONFIG)):
        return os.path.join(path, "policy")
    if os.path.isdir(os.path.join(path, "checkpoints")):
        raise ValueError(
            f"--checkpoint={path} is a run that has not finished: export its policy by python "
            f"-m experiments.convert --source={path} --target=DIR"
        )
    return hub.model(path)


# ------------------------------------------------------------------------------ asking and scoring
def answer(prepared: Prepared) -> None:
    """Asks for every missing answer.

    Raises:
        ServerLost, EngineFailure: the policy is gone; its answers so far are kept.
    """
    # The engine is closed before scoring, because the judge may need its memory.
    with contextlib.closing(prepared.policy):
        for task in prepared.tasks:
            with tqdm.tqdm(total=len(task.keys), desc=f"asking {task.name}") as bar:
                for done in prepared.policy.ask(task, prepared.stores[task.name]):
                    bar.update(done)


def check_answers(prepared: Prepared) -> None:
    """Raises ValueError if answers are missing, or says how many if the settings allow that."""
    for task in prepared.tasks:
        missing = [key for key in task.keys if key not in prepared.stores[task.name]]
        if not missing:
            continue
        uid, num = missing[0][0], f"{len(missing)} of {len(task.keys)}"
        message = f"{task.name}: {num} answers are missing, such as to {uid}"
        if not prepared.settings.allow_missing:
            raise ValueError(
                f"{message}: complete them (a server is asked again by the same command), or count "
                "them wrong by --allow_missing"
            )
        print(f"{message}; they count as wrong")


def write_report(prepared: Prepared) -> str:
    """Scores all answers and writes results, the report and every decision; returns the printed part.

    Raises:
        ServerLost: the judge is gone; its replies are kept.
    """
    evaluation = prepared.settings
    path = os.path.normpath(evaluation.model.checkpoint)
    label = evaluation.server.model if evaluation.server.url else os.path.basename(path)
    scored = {
        task.name: results.score(
            task,
            prepared.stores[task.name],
            prepared.judge,
            os.path.join(prepared.workdir, task.name),
            label=label,
            settings=prepared.records[task.name],
        )
        for task in prepared.tasks
    }
    return summary.write(
        prepared.workdir,
        scored,
        prepared.others,
        skipped=evaluation.skipped,
        seed=evaluation.seed,
    )
