#!/bin/bash
# Run in the root of a checkout: packs the packages that a borrowed GPU machine lacks into .gpu, which git ignores (9
# MiB; 60 with the tracked files). The machine needs Python 3.12, a CUDA build of torch, transformers, safetensors,
# OpenCV and accelerate.
set -eu
packages="diffusers==0.42.1 obstore==0.12.1 pydantic==2.14.3 pydantic_core==2.50.4 annotated-types==0.8.0
  typing-inspection==0.4.5 xformers==0.0.35"
platforms=$(printf -- '--platform %s ' manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux1_x86_64)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p .gpu "$work/site"
# shellcheck disable=SC2086
${PYTHON:-python3} -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  $platforms -d "$work/wheels" $packages
for wheel in "$work"/wheels/*.whl; do unzip -q -o "$wheel" -d "$work/site"; done
tar -C "$work/site" -cf - . | xz -6 > .gpu/site.tar.xz
git rev-parse --short=10 HEAD > .gpu/commit
{ git ls-files -z; find .gpu -type f -print0; } | du -cb --files0-from=- | tail -1 | awk '{printf "%.1f MiB to copy\n", $1/2^20}'
echo "next, on the GPU machine in the root of the copy: OUT=<folder> bash benchmarks/gpu/device.sh"
