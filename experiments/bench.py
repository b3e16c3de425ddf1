"""Measures the selector, the update and decoding, each beside its alternative and its floor.

    python -m experiments.bench --suite=all

Ratios are of one run, in which all cases take turns; times of different runs do not compare. With
`pip install trl==1.16.0`, TRL's own GRPO update runs beside ours. `--json=FILE` keeps the numbers.
"""

import dataclasses
import json
import pathlib

from absl import app, flags

from experiments.benchmarks import decode, selector, tables, timing, update

SUITES = {"selector": selector.run, "update": update.run, "decode": decode.run}

SUITE = flags.DEFINE_enum("suite", "all", ["all", *SUITES], "What to measure.")
QUICK = flags.DEFINE_bool("quick", False, "Tiny shapes: that it runs, not how fast.")
JSON = flags.DEFINE_string("json", None, "Writes all rows here.")


def main(_) -> None:
    """Prints each table as soon as it is there."""
    names = list(SUITES) if SUITE.value == "all" else [SUITE.value]
    machine = timing.describe()
    print(machine)
    results = {}
    for name in names:
        print(f"\n## {name}\n", flush=True)
        results[name] = []
        for table in SUITES[name](QUICK.value):
            results[name].append(table)
            print(tables.text(table), flush=True)
    if JSON.value:
        write(JSON.value, machine, results)


def write(path: str, machine: str, results: dict[str, list[tables.Table]]) -> None:
    """Writes the machine and every row as JSON."""
    suites = {
        name: [dataclasses.asdict(t) for t in found] for name, found in results.items()
    }
    content = {"machine": machine, "suites": suites}
    pathlib.Path(path).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    app.run(main)
