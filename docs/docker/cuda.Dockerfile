# Training on NVIDIA GPUs with vLLM's rollouts; needs a driver for CUDA 13 and the NVIDIA container toolkit.
# The CUDA libraries come with JAX's and torch's own packages. From the root of a checkout:
#
#   docker build -f docs/docker/cuda.Dockerfile -t vade_jax:cuda .
#   docker run --rm --gpus all --shm-size=32g -v /models:/models:ro -v /data:/data:ro \
#       -v vade_runs:/home/vade/vade_jax/runs vade_jax:cuda \
#       python -m experiments.train --config=configs/qwen7b_gspo.py --workdir=runs/qwen7b_gspo \
#       --config.model.checkpoint=/models/Qwen2.5-VL-7B-Instruct \
#       --config.data.train=/data/train.parquet --config.data.validation=/data/validation.parquet
FROM python:3.11.7-slim-bookworm

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Triton, which vLLM uses, compiles with gcc when it starts. Debian keeps one version of a release's packages.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 vade
WORKDIR /home/vade/vade_jax
COPY constraints/python3.11.txt setup.py pyproject.toml README.md LICENSE ./
COPY third_party third_party
COPY vade_jax vade_jax
RUN pip install --constraint python3.11.txt --editable '.[train,cuda,vllm]' \
    && install --directory --owner=1000 runs
COPY configs configs
COPY experiments experiments
USER 1000
CMD ["bash"]
