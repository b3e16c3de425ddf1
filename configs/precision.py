r"""Weights in bfloat16 beside float32 on the tiny job; docs/runs.md has what came out.

    python -m experiments.sweep --config=configs/precision.py --workdir=runs/precision --parallel=2
    python -m experiments.moved --start=runs/precision/warm_start_seed0 --policies \
        runs/precision/clean/gspo/{float32,float32_halves,bfloat16,bfloat16_plain}_seed0/policy

Selection is uniform and the computation in float32, so that the weights alone differ. Argument: `smoke`
(for tests).
Arms:

float32: the tiny job as it is
float32_halves: its gradients summed over half as large micro-batches: what rounding alone changes
bfloat16: bfloat16 weights with their remainders, see vade_jax/trainer/precision.py
bfloat16_plain: without the remainders
"""

from configs import arguments, sweeps, tiny


def get_config(arg=None):
    """Returns the sweep."""
    args = arguments.parse(arg, smoke=False)
    run = tiny.base("smoke" if args.smoke else None, selector="uniform")
    run.model.dtype = "float32"
    if not args.smoke:
        run.data.num_validation, run.eval.every = 1024, 40
    halves = {"model": {"param_dtype": "bfloat16"}}
    arms = {
        "float32": {},
        "float32_halves": {
            "batch": {"prompts_per_microbatch": run.batch.prompts_per_microbatch // 2}
        },
        "bfloat16": halves,
        "bfloat16_plain": halves | {"optimizer": {"remainders": False}},
    }
    c = sweeps.make(
        run,
        "precision",
        arms=arms,
        chosen=",".join(arms),
        losses={name: sweeps.changes(run, put) for name, put in sweeps.LOSSES.items()},
        baseline="float32",
    )
    c.losses = "gspo"
    return c
