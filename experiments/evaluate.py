r"""Scores a policy on the paper's benchmarks, from files of your own.

    python -m experiments.evaluate --config=configs/eval_paper.py --workdir=runs/eval \
        --checkpoint=runs/qwen7b_gspo --config.benchmarks.mathvista=testmini.parquet \
        --config.benchmarks.chartqa=chartqa.parquet --judge_server=URL --judge_model=NAME

The policy is one of --checkpoint (a run, or a Hugging Face directory), --server (any that speaks
OpenAI's chat API, with --model) and --answers (a file with uid, text[, sample]). Run again, it goes
on where it was: answers and the judge's replies are kept as they come. In WORKDIR: report.md,
results.json, and for each benchmark settings.json (all that was pinned), answers.jsonl, items.jsonl
(every answer with its verdict and the judge's words) and result.json.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence

import tqdm
from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors, run_directory
from experiments.evaluations import (
    answers,
    checkpoint,
    checks,
    plan,
    saved,
    scores,
    server,
    settings,
    summary,
)
from vade_jax.evals.chat import Chat, ServerLost
from vade_jax.evals.results import Result
from vade_jax.rollout.engine import EngineFailure


@dataclasses.dataclass(frozen=True)
class Job:
    """An evaluation whose inputs have all been looked at.

    Attributes:
      plans: the benchmarks.
      records: the settings of each.
      others: the results to compare with, by directory.
      policy: who answers, None for saved answers.
      stores: the answers of each, so far.
      judge: None where rules decide.
    """

    plans: Sequence[plan.Plan]
    records: Mapping[str, Mapping]
    others: Mapping[str, summary.Results]
    policy: checkpoint.Checkpoint | server.Server | None
    stores: Mapping[str, answers.Store | saved.Saved]
    judge: Chat | None


def main(c: ConfigDict, workdir: str) -> None:
    """Evaluates, or goes on where an evaluation in `workdir` was cut off."""
    with errors.user_errors():
        job = prepare(c, workdir)
    if job.policy is not None:
        with _stops(job):
            answer(job)
        with errors.user_errors():
            _check_whole(c, plans=job.plans, stores=job.stores)
    with _stops(job):
        found = {each.name: score(c, job, each, workdir) for each in job.plans}
    shown = summary.write(
        workdir,
        found,
        job.others,
        skipped=plan.skipped_of(c),
        size=c.size,
        seed=c.seed,
    )
    print(f"{shown}\nin {workdir}: report.md, results.json, a directory a benchmark")


def prepare(c: ConfigDict, workdir: str) -> Job:
    """Returns the job: files read, servers asked for a word, every prompt built once.

    Raises:
      ValueError: something does not do.
      FileNotFoundError: there is no such checkpoint.
    """
    checks.config(c)
    plans = plan.make(c)
    others = {path: summary.load(path) for path in c.compare}
    for path, other in others.items():
        summary.check_pair(path, other, plans)
    policy = _policy(c, plans, workdir)
    judge = scores.make_judge(c, plans, workdir)
    of_policy = settings.policy(c, getattr(policy, "template", ""))
    records = {each.name: settings.record(c, each, of_policy) for each in plans}
    stores = _stores(c, plans, workdir)
    if c.answers:
        _check_whole(c, plans, stores)
    for name, wanted in records.items():
        path = pathlib.Path(workdir, name, "settings.json")
        if c.answers or not stores[name].answers:
            path.unlink(missing_ok=True)  # nothing was made with them
        run_directory.claim(path, wanted, settings.MAY_CHANGE)
    if policy is not None:
        for each in plans:
            policy.check(each, stores[each.name])
    return Job(plans, records, others, policy, stores, judge)


def answer(job: Job) -> None:
    """Asks for every answer that is not there."""
    with contextlib.closing(job.policy):  # an engine's memory may be the judge's
        for each in job.plans:
            with tqdm.tqdm(total=len(each.keys), desc=f"asking {each.name}") as bar:
                for done in job.policy.ask(each, job.stores[each.name]):
                    bar.update(done)


def score(c: ConfigDict, job: Job, each: plan.Plan, workdir: str) -> Result:
    """Returns the result of one benchmark, written to its directory."""
    return scores.score(
        each,
        job.stores[each.name].answers,
        job.judge,
        os.path.join(workdir, each.name),
        label=label(c),
        settings=job.records[each.name],
    )


def label(c: ConfigDict) -> str:
    """Returns the name of the policy's row."""
    path = c.answers or c.model.checkpoint
    named = c.server.model if c.server.url else os.path.basename(os.path.normpath(path))
    return c.label or named


def _policy(c: ConfigDict, plans: Sequence[plan.Plan], workdir: str):
    if c.answers:
        return None
    if c.server.url:
        return server.Server(c, workdir)
    return checkpoint.Checkpoint(c, plans, workdir)


def _stores(c: ConfigDict, plans: Sequence[plan.Plan], workdir: str):
    paths = {p.name: os.path.join(workdir, p.name, answers.NAME) for p in plans}
    if not c.answers:
        return {name: answers.Store(path) for name, path in paths.items()}
    if taken := [path for path in paths.values() if os.path.exists(path)]:
        raise ValueError(
            f"{taken[0]} has the answers of another evaluation, whose results would be replaced: give "
            "another --workdir"
        )
    return saved.read(c.answers, plans)


def _check_whole(c: ConfigDict, plans: Sequence[plan.Plan], stores: Mapping) -> None:
    for each in plans:
        answers.check_whole(each, stores[each.name].answers, c.allow_missing)


@contextlib.contextmanager
def _stops(job: Job) -> Iterator[None]:
    """Ends with one line when somebody who answers is gone, or Ctrl-C came."""
    try:
        yield
    except (ServerLost, EngineFailure, KeyboardInterrupt) as error:
        kept = sum(len(store.answers) for store in job.stores.values())
        sys.exit(
            f"error: {str(error) or 'stopped'}; {kept:,} answers and all replies of the judge are "
            "kept: run again to go on"
        )


def _from_flags(c: ConfigDict, workdir: str) -> None:
    """Puts the flags over the config, where they are given."""
    for flag, field in FLAGS.items():
        value = flags.FLAGS[flag].value
        if value:
            section, _, name = field.rpartition(".")
            value = tuple(value) if flag == "compare" else value
            setattr(c[section] if section else c, name, value)
    main(c, workdir)


if __name__ == "__main__":
    define = functools.partial(flags.DEFINE_string, default=None)
    FLAGS = {
        "checkpoint": "model.checkpoint",
        "server": "server.url",
        "model": "server.model",
        "answers": "answers",
        "judge_server": "judge.url",
        "judge_model": "judge.model",
        "rules": "judge.rules",
        "compare": "compare",
        "allow_missing": "allow_missing",
    }
    define("checkpoint", help="A run directory, or a Hugging Face directory.")
    define("server", help="URL of an OpenAI-compatible server that answers.")
    define("model", help="The name that --server has it under.")
    define("answers", help="Saved answers: .jsonl, .parquet, or a directory.")
    define("judge_server", help="URL of an OpenAI-compatible server that judges.")
    define("judge_model", help="The name that --judge_server has it under.")
    flags.DEFINE_bool("rules", False, "No judge: rules alone, ours where need be.")
    flags.DEFINE_multi_string("compare", [], "--workdir of another evaluation.")
    flags.DEFINE_bool("allow_missing", False, "Answers that are missing are wrong.")
    cli.run(_from_flags)
