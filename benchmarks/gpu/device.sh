#!/bin/bash
# Runs the GPU check in the root of a copied checkout with .gpu (see prepare.sh), and writes its results into $OUT.
# Passes its arguments on, such as --phases and --device. BUDGET_S is the time for all phases in seconds (450).
set -u
site=$(mktemp -d)
tar -xJf .gpu/site.tar.xz -C "$site" || exit 1
mkdir -p "$OUT"
export PYTHONPATH="$site" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false COMMIT
COMMIT=$(cat .gpu/commit)
if command -v nvidia-smi > /dev/null; then
  nvidia-smi dmon -s pum -d 1 -o T > "$OUT/dmon.txt" 2>&1 &
  watcher=$!
fi
${PYTHON:-python3} -m benchmarks.gpu --out "$OUT" --budget-s "${BUDGET_S:-450}" "$@"
status=$?
[ -n "${watcher:-}" ] && kill "$watcher"
# Some machines return few files. The files stay as they are if the script ends before this line.
shopt -s extglob
(cd "$OUT" && tar -czf processes.tar.gz !(gpu-check.json|table.txt|processes.tar.gz) --remove-files)
exit "$status"
