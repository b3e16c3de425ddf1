"""The paper's five benchmarks: average@4, or greedy where the paper's numbers are.

    python -m experiments.evaluate --config=configs/eval_paper.py --checkpoint=DIR --workdir=DIR \
        --config.benchmarks.mathvista=testmini.parquet --judge_server=URL --judge_model=NAME

Arguments: `cot` (the policy reasons and boxes its answer; another protocol, other numbers);
`seed=3`.
"""

from ml_collections import ConfigDict

from configs import arguments, default
from vade_jax.evals import benchmarks


def get_config(arg: str | None = None) -> ConfigDict:
    """Returns what is asked, of whom, and who judges; what no protocol fixes is pinned here."""
    args = arguments.parse(arg, cot=False, seed=0)
    c = ConfigDict()
    c.profile = "cot" if args.cot else "paper"  # never in one table
    c.benchmarks = ConfigDict(dict.fromkeys(benchmarks.BENCHMARKS, ""))  # files
    c.num_items = 0  # the first of each, to try things out; 0: all
    c.label = ""  # of the row in the table; empty: the policy's name
    c.size = ""  # 7B or 3B: the paper's rows stand above
    c.seed = args.seed
    c.compare = ()  # directories of other evaluations of the same items
    c.allow_missing = False  # True: items without an answer are wrong and counted

    # Whose answers: exactly one of the three.
    c.model = ConfigDict(dict(checkpoint="", dtype="auto"))
    c.server = _server()
    c.server.fields = '{"top_k": -1, "repetition_penalty": 1.0}'  # vLLM's; APIs: {}
    c.answers = ""  # a .jsonl or .parquet file, or a directory: uid, text[, sample]

    c.sampling = ConfigDict()  # where the protocol samples; the others are greedy
    c.sampling.temperature = 1.0  # the paper says nothing
    c.sampling.top_p = 1.0
    c.sampling.top_k = 0  # of a checkpoint; a server's is in server.fields
    c.sampling.num_samples = 0  # 0: the protocol's, 4
    c.sampling.max_tokens = 0  # 0: the protocol's, 2048

    c.judge = _server()
    c.judge.rules = False  # True: no judge; our own rules where the benchmark has none

    run = default.get_config()
    c.data = ConfigDict(dict(instruction=""))  # put behind every question
    for name in ("min_pixels", "max_pixels", "max_prompt_length", "length_multiple"):
        c.data[name] = run.data[name]
    c.engine, c.layout, c.mesh = run.engine, run.layout, run.mesh
    c.chunk = 256  # prompts whose answers are saved together
    return c


def _server() -> ConfigDict:
    """Returns the fields of an OpenAI-compatible server."""
    c = ConfigDict()
    c.url = ""
    c.model = ""  # the name it is served under
    c.api_key_env = ""  # the environment variable that holds the key
    c.fields = "{}"  # JSON put into every request; a null takes a field out
    c.concurrency = 16  # requests at once
    c.retries = 5  # of a question
    c.timeout_s = 300.0
    return c
