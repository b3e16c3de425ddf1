"""A disk of a trial refuses what is written, and takes it again once it is mended."""

import os
import subprocess
import sys
import time

import pytest

from experiments.torture import disks

WRITES = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(bytes(1000)); time.sleep(0.001)
"""


@pytest.mark.parametrize("can_mount", [True, False])
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_fault_comes_to_what_writes_there(tmp_path, monkeypatch, can_mount, fault):
    if not can_mount:
        monkeypatch.setattr(disks.shutil, "which", lambda name: None)
        if fault == "read-only" and os.geteuid() == 0:
            pytest.skip("permissions do not stop root")
    with disks.own(tmp_path) as disk:
        path = tmp_path / "file"
        if fault == "full":
            writer = subprocess.Popen([sys.executable, "-c", WRITES, str(path)], stderr=-1)
            while not path.exists():
                time.sleep(0.01)
            disk.fill(writer.pid, 5000)
            said = writer.communicate(timeout=60)[1].decode()
            assert "OSError: [Errno" in said
        else:
            disk.make_read_only()
            with pytest.raises(OSError):
                path.touch()
        disk.mend()
        path.write_bytes(bytes(20_000))
