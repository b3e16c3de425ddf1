"""A large random checkpoint, through devices and back: what the slow test runs as a process of its own.

    python -m tests.models.qwen.large PRESET SOURCE TARGET

Loads SOURCE onto four fake devices in bfloat16, deletes it and writes TARGET; prints seconds and
bytes as JSON. Peaks are of anonymous memory (RssAnon): the resident set also counts pages of the
mapped files, which are the disk's cache and which the system takes back when it needs them.
"""

import contextlib
import json
import pathlib
import shutil
import sys
import threading
import time
import zlib

import jax
import ml_dtypes
import numpy as np


def tensor(name: str, size: tuple[int, ...]) -> np.ndarray:
    """Returns finite random bfloat16 numbers that the name decides."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    bits = np.frombuffer(rng.bytes(2 * int(np.prod(size))), np.uint16) & 0xBFFF
    return bits.view(ml_dtypes.bfloat16).reshape(size)


@contextlib.contextmanager
def measured(name: str, found: dict):
    """Adds the seconds and the peak of anonymous memory, in bytes, of what runs inside."""
    done, peak = threading.Event(), [0]

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], _anonymous())
            done.wait(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    try:
        yield
    finally:
        found[f"{name}_seconds"] = time.perf_counter() - start
        done.set()
        thread.join()
        found[f"{name}_peak"] = peak[0]


def _anonymous() -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def main(preset: str, source: str, target: str) -> None:
    jax.config.update("jax_num_cpu_devices", 4)
    from vade_jax.models.qwen import files, model, presets
    from vade_jax.trainer import mesh

    found = {"before": _anonymous()}
    abstract = model.abstract(presets.PRESETS[preset])
    shardings = mesh.shardings(mesh.make(fsdp=4), abstract)
    with measured("load", found):
        shape, params = files.load(source, ml_dtypes.bfloat16, shardings)
    found["arrays"] = sum(x.nbytes for x in jax.tree.leaves(params))
    shutil.rmtree(source)
    with measured("save", found):
        files.save(target, shape, params, ml_dtypes.bfloat16)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
