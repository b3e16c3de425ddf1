"""The run that tests count by hand."""

import pytest

from tests.report import report_run
from vade_jax.report import run


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    return run.read(report_run.make(tmp_path_factory.mktemp("known")))
