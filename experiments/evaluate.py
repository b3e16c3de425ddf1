r"""Scores a policy on the paper's benchmarks, read from files that you provide.

    python -m experiments.evaluate --config=configs/eval_paper.py --workdir=runs/eval \
        --checkpoint=runs/qwen7b_gspo --config.benchmarks.mathvista=testmini.parquet \
        --config.benchmarks.chartqa=chartqa.parquet --judge_server=URL --judge_model=NAME

The policy is --checkpoint (a run, or a Hugging Face directory) or --server with --model (any server with
OpenAI's chat API). Answers and the judge's replies are saved immediately; the same command resumes an
evaluation. WORKDIR holds report.md, results.json, and for each benchmark settings.json (all settings that
affect scores), answers.jsonl, items.jsonl (every answer with its verdict and the judge's words) and
result.json.
"""

import contextlib
import functools
from collections.abc import Iterator

from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.evals import evaluation
from experiments.evals.chat import ServerLost
from experiments.evals.settings import Evaluation
from vade_jax.rollout.engine import EngineFailure, EngineLost
from vade_jax.run.directory import own


def main(c: ConfigDict, workdir: str) -> None:
    """Evaluates a policy, or resumes the evaluation in `workdir`."""
    with errors.user_errors():
        settings = Evaluation.from_dict(c.to_dict())
        owned = own(workdir)
    with owned:  # two evaluations at once would mix their answers
        with errors.user_errors():
            prepared = evaluation.prepare(settings, workdir)
        with _stops(prepared):
            evaluation.answer(prepared)
        with errors.user_errors():
            evaluation.check_answers(prepared)
        with _stops(prepared):
            shown = evaluation.write_report(prepared)
    print(f"{shown}\nin {workdir}: report.md, results.json, a directory a benchmark")


@contextlib.contextmanager
def _stops(prepared: evaluation.Prepared) -> Iterator[None]:
    """Ends with one line if the policy or the judge fails, or at Ctrl-C."""
    try:
        yield
    except (ServerLost, EngineFailure, KeyboardInterrupt) as error:
        errors.end_with(
            f"error: {str(error) or 'stopped'}; {prepared.num_answers:,} answers and all replies "
            "of the judge are kept: run again to continue",
            errors.AGAIN if isinstance(error, ServerLost | EngineLost) else 1,
        )


def _from_flags(c: ConfigDict, workdir: str) -> None:
    """Overrides the config by the flags that are given, and runs the evaluation."""
    if "benchmarks" not in c:
        with errors.user_errors():
            raise ValueError(
                "--config is not of an evaluation: give configs/eval_paper.py, or one like it"
            )
    for field, flag in FLAGS.items():
        if flag.present:
            section, _, name = field.rpartition(".")
            value = tuple(flag.value) if isinstance(flag.value, list) else flag.value
            setattr(c[section] if section else c, name, value)
    main(c, workdir)


if __name__ == "__main__":
    define = functools.partial(flags.DEFINE_string, default=None)
    switch = flags.DEFINE_bool
    FLAGS = {  # the config field that each flag sets
        "model.checkpoint": flags.DEFINE_string(
            "checkpoint", None, "A run directory, or a Hugging Face directory."
        ),
        "server.url": define("server", help="URL of an OpenAI-compatible server that answers."),
        "server.model": define("model", help="The model's name on --server."),
        "judge.url": define("judge_server", help="URL of an OpenAI-compatible server that judges."),
        "judge.model": define("judge_model", help="The model's name on --judge_server."),
        "judge.rules": switch(
            "rules", False, "No judge: the benchmark's rules, or ours if it has none."
        ),
        "compare": flags.DEFINE_multi_string("compare", [], "--workdir of another evaluation."),
        "allow_missing": switch("allow_missing", False, "Counts missing answers as wrong."),
    }
    cli.run(_from_flags)
