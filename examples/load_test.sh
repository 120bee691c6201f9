#!/bin/sh
# Load-tests the service and writes a report into load-report/. It makes real tasks at real costs.
# Needs gen-serve-bench. RATE: requests per second; DURATION: seconds; SLO: latency objective in seconds.
set -eu

gen-serve bench run \
  --endpoint gen-3-image-klein --size 256x256 --steps 4 \
  --arrivals poisson --rate "${RATE:-1}" --duration "${DURATION:-30}" --seed 1 \
  --slo "${SLO:-10}" --fail-if 'attainment<0.95' \
  --output load-report
