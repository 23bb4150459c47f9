#!/bin/bash
# Builds the library for the GPU of this machine, runs its tests there and the benchmark: all that needs a GPU, in one
# go of less than 6 minutes, from a bare checkout, without network.
#
#     benchmarks/gpu_check.sh [FOLDER_FOR_RESULTS]
#
# Needs torch with CUDA, nvcc, ninja, pybind11, setuptools and pytest; compute-sanitizer and ncu are used if present.
# DRY_RUN=1 runs every step that can be run without a GPU: on the CPU, in tiny sizes.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
results=${1:-${OUT:-$root/build/gpu_check}}
mkdir -p "$results"
results=$(cd "$results" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
dry=${DRY_RUN:-0}
device=cuda
failed=()

# Runs a step with a time limit; its output goes to a file, and its end to the screen should it fail.
step() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  if timeout --kill-after=10 "$limit" "$@" >"$results/$name.log" 2>&1; then
    echo "== $name: ok, $((SECONDS - begin)) s"
  else
    echo "== $name: FAILED with status $?, $((SECONDS - begin)) s"
    tail -n 40 "$results/$name.log"
    failed+=("$name")
    return 1
  fi
}

# The root of the toolkit, also where the nvcc on the path is a script that calls another one.
toolkit_root() {
  echo 'int main() {}' >"$work/empty.cu"
  local top
  top=$(nvcc --dryrun -c "$work/empty.cu" -o "$work/empty.o" 2>&1 | sed -n 's/^#\$ TOP=//p')
  (cd "$top" && pwd -P)
}

# A private copy: the checkout stays as it is, and Python finds the installed package, not the source folder.
copy_sources() {
  mkdir "$work/source" "$work/tests"
  tar -C "$root" -c --exclude=./.git --exclude=./build --exclude='./.venv*' --exclude='*.so' \
    --exclude=./chunked_noise/lib --exclude=./chunked_noise/build.json --exclude=./shared . | tar -x -C "$work/source"
  cp -r "$work/source/tests/." "$work/tests"
  cp "$work/source/pyproject.toml" "$work"
}

export PYTHONDONTWRITEBYTECODE=1 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
if [[ $dry == 1 ]]; then
  device=cpu
  export CHUNKED_NOISE_CUDA=0
  bench_options=(--smoke)
elif ! "$python" -c 'import torch; torch.zeros(1, device="cuda")'; then
  echo "no GPU that torch can use; DRY_RUN=1 runs what needs none"
  exit 1
else
  export CHUNKED_NOISE_CUDA=1 FAIL_WITHOUT_CUDA=1
  export CUDA_HOME=${CUDA_HOME:-$(toolkit_root)}
  TORCH_CUDA_ARCH_LIST=$("$python" -c 'import torch; print("%d.%d" % torch.cuda.get_device_capability())')
  export TORCH_CUDA_ARCH_LIST
  bench_options=()
  nvidia-smi >"$results/nvidia-smi.txt" 2>&1
fi
"$python" -c 'import sys, torch; print(sys.version, torch.__version__, torch.version.cuda)' | tee "$results/versions.txt"

copy_sources
cd "$work" || exit 1
if step build 150 "$python" -m pip install --no-build-isolation --no-deps --target "$work/site" "$work/source"; then
  export PYTHONPATH=$work/site
  cp "$work/site/chunked_noise/build.json" "$results"

  step tests 80 "$python" -m pytest -q tests/test_cuda.py -m cuda --junitxml="$results/tests.xml"
  tail -n 1 "$results/tests.log"

  if [[ $dry == 0 ]] && command -v compute-sanitizer >/dev/null; then
    # Without torch's caching allocator a write past the end of a tensor leaves its allocation.
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 step sanitizer 45 compute-sanitizer --error-exitcode 9 --leak-check no \
      "$python" -m pytest -q tests/test_cuda.py -k "windows and float32 or aligned"
  else
    echo "== sanitizer: left out"
  fi

  step bench 60 "$python" "$root/benchmarks/bench_gpu.py" --device "$device" --json "$results/bench_gpu.json" \
    "${bench_options[@]}"

  if [[ $dry == 0 ]] && command -v ncu >/dev/null; then
    # Whether memory or arithmetic bounds the main case: the share of each unit's peak.
    step ncu 25 ncu --kernel-name regex:fill_kernel --launch-skip 5 --launch-count 1 --csv --metrics \
      sm__throughput.avg.pct_of_peak_sustained_elapsed,gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed,sm__inst_issued.avg.pct_of_peak_sustained_active,gpu__time_duration.sum \
      "$python" "$root/benchmarks/bench_gpu.py" --main-case
  else
    echo "== ncu: left out"
  fi
fi

echo
[[ -s $results/ncu.log ]] && awk -F '","' '/fill_kernel/ { sub(/"$/, "", $NF); print $(NF - 2), $NF, $(NF - 1) }' "$results/ncu.log"
[[ -s $results/bench.log ]] && cat "$results/bench.log"
echo "results in $results, after $SECONDS s"
if ((${#failed[@]})); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
