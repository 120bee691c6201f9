#!/bin/bash
# On a GPU machine, in the root of a copy of the checkout that has .gpu (prepare.sh): the check, its results in $OUT.
# Arguments go to it: --phases, --device. All phases have BUDGET_S seconds (450).
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
ended=$?
[ -n "${watcher:-}" ] && kill "$watcher"
# Few files come back from some machines. All that a process wrote stays where this line is not reached.
shopt -s extglob
(cd "$OUT" && tar -czf processes.tar.gz !(gpu-check.json|table.txt|processes.tar.gz) --remove-files)
exit "$ended"
