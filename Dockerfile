# Two images: `docker build --target cpu .`, and `--target cuda` for NVIDIA GPUs, whose driver is the host's.
#
# Python packages are those that were tested, by hash (requirements.lock), but for torch on CPUs, which has an index of
# its own and comes by version. For the same bytes of the base again, too, name it by digest:
# --build-arg PYTHON_IMAGE=docker.io/library/python:3.11.14-slim-bookworm@sha256:…
ARG PYTHON_IMAGE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS wheels
WORKDIR /src
COPY requirements.lock ./
# What builds, by hash as well: pip would fetch the newest.
RUN awk '/^[^ ]/ {keep = /^setuptools==/} keep' requirements.lock > build.lock \
    && pip install --no-cache-dir --require-hashes --no-deps -r build.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY clients/python clients/python
COPY configs configs
COPY deployments deployments
COPY docs docs
COPY serve_app serve_app
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . ./clients/python

FROM ${PYTHON_IMAGE} AS packages-cuda
WORKDIR /src
RUN python -m venv /opt/venv
COPY requirements.lock requirements-gpu.lock ./
RUN /opt/venv/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock -r requirements-gpu.lock
COPY --from=wheels /wheels /wheels
RUN /opt/venv/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl \
    && /opt/venv/bin/python -m compileall -q /opt/venv/lib/python3*/site-packages/serve_app

FROM ${PYTHON_IMAGE} AS packages-cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
RUN python -m venv /opt/venv
COPY requirements.lock ./
# The lock names torch for CUDA, and 5 GB of libraries for it.
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --index-url "${TORCH_INDEX}" \
      "$(awk '/^torch==/ {print $1}' requirements.lock)" \
    && awk '/^[^ ]/ {keep = !/^(torch|triton|nvidia-|cuda-)/} keep' requirements.lock > cpu.lock \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes --no-deps -r cpu.lock
COPY --from=wheels /wheels /wheels
RUN /opt/venv/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl \
    && /opt/venv/bin/python -m compileall -q /opt/venv/lib/python3*/site-packages/serve_app

FROM ${PYTHON_IMAGE} AS runtime
RUN useradd --uid 10001 --user-group --create-home gen-serve \
    && install -d -o gen-serve -g gen-serve -m 0700 /var/lib/gen-serve /var/cache/gen-serve
COPY deploy/docker/haproxy /usr/local/bin/gen-serve-haproxy
COPY configs /opt/gen-serve/configs
# The paths that settings name are relative to it.
WORKDIR /opt/gen-serve
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GEN_DATA_DIR=/var/lib/gen-serve \
    HF_HOME=/var/cache/gen-serve \
    TORCHINDUCTOR_CACHE_DIR=/var/cache/gen-serve/inductor \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
# What Ray's processes must start with: serve_app/launcher/ray_flags.py says what each is for.
ENV RAY_SERVE_ENABLE_HA_PROXY=1 \
    RAY_SERVE_HAPROXY_NBTHREAD=1 \
    RAY_SERVE_THROUGHPUT_OPTIMIZED=1 \
    RAY_SERVE_USE_GRPC_BY_DEFAULT=1 \
    RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS=1 \
    RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT=20 \
    RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=1 \
    RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S=2 \
    RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=20 \
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=2 \
    RAY_worker_niceness=0 \
    FORWARDED_ALLOW_IPS= \
    RAY_AUTH_MODE=token \
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1 \
    OMP_WAIT_POLICY=PASSIVE \
    RAY_USAGE_STATS_ENABLED=0
EXPOSE 8000 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=180s --retries=6 \
    CMD ["python", "-I", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('GEN_SERVICE__PORT', '8000') + '/readyz', timeout=4)"]
ENTRYPOINT ["gen-serve"]
CMD ["up", "--config", "configs/container.yaml", "--show-key"]

FROM runtime AS cuda
# Triton compiles, at run time, what torch.compile asks for.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=packages-cuda /opt/venv /opt/venv
USER 10001:10001
CMD ["up", "--config", "configs/container-gpu.yaml", "--show-key"]

FROM runtime AS cpu
COPY --from=packages-cpu /opt/venv /opt/venv
USER 10001:10001
