# The selectors, the simulator and the tiny jobs, on a CPU. From the root of a checkout:
#
#   docker build -f docs/docker/cpu.Dockerfile -t vade_jax:cpu .
#   docker run --rm -v vade_runs:/home/vade/vade_jax/runs vade_jax:cpu \
#       python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo
FROM python:3.11.7-slim-bookworm

# Huge pages save a quarter of a CPU run's time.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 GLIBC_TUNABLES=glibc.malloc.hugetlb=1
RUN useradd --create-home --uid 1000 vade
WORKDIR /home/vade/vade_jax
COPY constraints/python3.11.txt setup.py pyproject.toml README.md LICENSE ./
COPY third_party third_party
COPY vade_jax vade_jax
RUN pip install --constraint python3.11.txt --editable '.[train]' \
    && install --directory --owner=1000 runs
COPY configs configs
COPY experiments experiments
USER 1000
CMD ["python", "-m", "experiments.train", "--config=configs/tiny_gspo.py", "--workdir=runs/tiny_gspo"]
