"""Adds a column `pass_rate` to rows: their share of right answers in an earlier run; null if it asked none.

    python docs/examples/pass_rates.py runs/old rows.jsonl rated.jsonl

Rows are .jsonl or .parquet. The column is a prior: --config.selector.arrays="{'pass_rate': 'pass_rate'}"
"""

import json
import pathlib
import sys

import pyarrow as pa
from pyarrow import parquet


def main(run, rows, target):
    log = parquet.read_table(pathlib.Path(run, "rollouts"), columns=["uid", "correct"])
    means = log.group_by("uid").aggregate([("correct", "mean")]).to_pydict()
    rates = dict(zip(means["uid"], means["correct_mean"], strict=True))
    rows = pathlib.Path(rows)
    # The id that the run gave to a row without one
    uid = lambda i, name: f"{rows.stem}:{i}" if name in (None, "") else str(name)
    if rows.suffix == ".parquet":
        table = parquet.read_table(rows)
        ids = table["id"].to_pylist() if "id" in table.column_names else [None] * len(table)
        column = pa.array([rates.get(uid(i, x)) for i, x in enumerate(ids)], pa.float32())
        parquet.write_table(table.append_column("pass_rate", column), target)
        return
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    rated = [{**x, "pass_rate": rates.get(uid(i, x.get("id")))} for i, x in enumerate(lines)]
    pathlib.Path(target).write_text("".join(json.dumps(x) + "\n" for x in rated))


if __name__ == "__main__":
    main(*sys.argv[1:])
