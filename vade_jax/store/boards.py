"""Where a run can be watched besides its metrics.jsonl: TensorBoard, and Weights & Biases.

Both get the names, steps and numbers of that file; what is null there is NaN here.
"""

import math
import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

PathLike = str | os.PathLike[str]
Values = Mapping[str, float | int | None]


class TensorBoard:
    """Writes to `workdir`/tensorboard."""

    def __init__(self, workdir: PathLike):
        try:
            import tensorboardX
        except ImportError as error:
            raise ImportError(
                "tensorboard=True needs tensorboardX: pip install 'vade_jax[tracking]'"
            ) from error
        self._package, self._board = tensorboardX, None
        self._folder = pathlib.Path(workdir) / "tensorboard"

    def write(self, step: int, values: Values) -> None:
        if self._board is None:  # now, so that a resumed run hides what it makes again
            self._board = self._package.SummaryWriter(
                str(self._folder), purge_step=int(step)
            )
        for name, value in _with_nan(values).items():
            self._board.add_scalar(name, value, step)
        self._board.flush()

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


class WeightsAndBiases:
    """Writes to a run of a W&B project, the same one when the job is resumed.

    `step` is a metric and the axis of all others: a resumed run makes steps again, which W&B's own
    counter would refuse; their points fall on the earlier ones. WANDB_MODE=offline writes to
    `workdir`/wandb alone, for `wandb sync --append`.

    Args:
        workdir: whose last part names the run.
        project: of W&B.
        config: shown beside the run.

    Raises:
        ImportError: wandb is not installed.
        ValueError: W&B refuses, such as for want of a login.
    """

    def __init__(self, workdir: PathLike, project: str, config: Mapping[str, Any]):
        try:
            import wandb
        except ImportError as error:
            raise ImportError(
                f"wandb={project!r} needs the package: pip install wandb"
            ) from error
        path = pathlib.Path(workdir).absolute()
        try:
            self._run = wandb.init(
                project=project,
                name=path.name,
                id=_run_id(path),
                resume="allow",
                dir=str(path),
                config=dict(config),
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            raise ValueError(
                f"wandb={project!r}: {str(error).rstrip('.')}; run `wandb login`, set WANDB_MODE=offline, or "
                'leave it out with --config.wandb=""'
            ) from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Values) -> None:
        self._run.log({"step": int(step), **_with_nan(values)})

    def close(self) -> None:
        self._run.finish()


def _run_id(path: pathlib.Path) -> str:
    """Returns the id that is kept in the run directory, a new one for a new directory."""
    kept = path / "wandb" / "run_id"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(uuid.uuid4().hex[:12])
    return kept.read_text().strip()


def _with_nan(values: Values) -> dict[str, float]:
    return {name: math.nan if x is None else x for name, x in values.items()}
