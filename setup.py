"""The metadata is in pyproject.toml; this file is for tools that still look for it."""

import setuptools

setuptools.setup()
