#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On a machine with an NVIDIA device and a Kokkos built for CUDA: checks the vendor's products, builds Orthant for the
# device and for the host, runs the tests with 1 rank and with 2 and 4 ranks that share the device, the benchmarks, and
# the same training on device and host, and ends with one table of all that. Never run on a device so far.
#
# usage: scripts/gpu_check.sh [--out DIR] [--kokkos DIR]
#   --out DIR          logs, JSON lines and table.txt (default: build-gpu-check in the source tree)
#   --kokkos DIR       the Kokkos built for CUDA (default: $Kokkos_ROOT, else what bootstrap.sh --kokkos cuda built)
# ORTHANT_JOBS         compilations at a time (default: the number of cores)
# Exit status: 0 all passed, 1 a step failed (the table says which), 2 something that it needs is not here.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$repository/build-gpu-check
kokkos=${Kokkos_ROOT:-${ORTHANT_PREFIX:-$repository/.deps}/kokkos-cuda}
fail() {
  printf 'gpu_check: error: %s\n' "$*" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) sed -n '4,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  --out | --kokkos)
    [ $# -ge 2 ] || fail "$1 needs a value; see --help"
    case $1 in
    --out) out=$2 ;;
    --kokkos) kokkos=$2 ;;
    esac
    shift 2
    ;;
  *) fail "unknown option '$1'; see --help" ;;
  esac
done

command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || fail "no nvcc on PATH (load the CUDA module)"
device=$({ nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null || true; } | head -n 1)
[ -n "$device" ] || fail "nvidia-smi shows no device here"
[ -x "$kokkos/bin/nvcc_wrapper" ] || fail "no Kokkos for CUDA in $kokkos; scripts/bootstrap.sh --kokkos cuda builds one"
for program in cmake ninja mpirun; do command -v "$program" >/dev/null || fail "no $program on PATH"; done

unset Kokkos_ROOT # the host's build has a Kokkos of its own
mkdir -p "$out"
out=$(cd "$out" && pwd)
table=$out/table.txt
jobs=${ORTHANT_JOBS:-$(nproc)}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
launch=(mpirun)
if mpirun --version 2>&1 | grep -q 'Open MPI'; then launch=(mpirun --oversubscribe --bind-to none); fi
failed=no
printf '%s\n%s, commit %s, %s\n\n' "Orthant on a device" "$device" \
  "$(git -C "$repository" rev-parse --short HEAD 2>/dev/null || echo unknown)" "$(date -u +%F)" >"$table"

# step NAME COMMAND ..: runs it with its output in NAME.log; a failure is noted and the next step runs.
step() {
  local name=$1 start=$SECONDS result=passed
  shift
  printf 'gpu_check: %s ..\n' "$name"
  "$@" >"$out/$name.log" 2>&1 || {
    result="FAILED (status $?), see $name.log"
    failed=yes
  }
  printf '%-24s %s, %d s\n' "$name" "$result" $((SECONDS - start)) >>"$table"
  [ "$result" = passed ]
}
# The line of ctest that counts, and the names of what was skipped.
note_tests() {
  sed -n 's/^\([0-9]*% tests passed.*\)/    \1/p; s/^ *[0-9]*\/[0-9]* Test .*: \([^ ]*\) .*\*\*\*Skipped.*/    skipped: \1/p' \
    "$out/$1.log" >>"$table"
}
build() { # FOLDER, options
  local folder=$1
  shift
  cmake -S "$repository" -B "$out/$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" &&
    cmake --build "$out/$folder" --parallel "$jobs"
}
tests() { # FOLDER, further options of ctest
  local folder=$1
  shift
  ctest --test-dir "$out/$folder" --output-on-failure --no-tests=error -LE large "$@"
}
# Losses by epoch of one run: FOLDER DTYPE
losses() {
  rm -f "$out/losses-$1-$2.jsonl"
  "${launch[@]}" -n 1 "$out/$1/bin/orthant" train --dataset sbm:vertices=2000,classes=8,features=32 --layers 3 --hidden 64 \
    --epochs 20 --seed 1 --compute-dtype "$2" --metrics "$out/losses-$1-$2.jsonl"
}
compare_losses() { # DTYPE TOLERANCE
  python3 - "$out/losses-device-$1.jsonl" "$out/losses-host-$1.jsonl" "$2" <<'PYTHON'
import json
import sys

def losses(path):
    lines = [json.loads(line) for line in open(path)]
    return [line["loss"] for line in lines if line["event"] == "epoch"]

device, host = losses(sys.argv[1]), losses(sys.argv[2])
assert device and len(device) == len(host), f"{len(device)} and {len(host)} epochs"
worst = max(abs(a - b) / abs(b) for a, b in zip(device, host))
print(f"{len(host)} epochs; first {device[0]} {host[0]}; last {device[-1]} {host[-1]}; largest relative difference {worst:.3g}")
sys.exit(worst > float(sys.argv[3]))
PYTHON
}

step vendor_products env ORTHANT_BUILD_DIR="$out/cuda-check" "$repository/scripts/check_cuda.sh" || true
step build_host build host || true
if step build_device build device -DKokkos_ROOT="$kokkos" -DCMAKE_CXX_COMPILER="$kokkos/bin/nvcc_wrapper" \
  -DORTHANT_ENABLE_NCCL=ON; then
  for ranks in 1 2 4; do # one rank: NCCL; several share the device, which NCCL refuses: MPI
    step "tests_np$ranks" tests device -R "\.np$ranks\$" || true
    note_tests "tests_np$ranks"
  done
  # Drivers that start jobs of their own.
  step tests_drivers tests device -E '\.np[0-9]+$|^hygiene' || true
  note_tests tests_drivers
  if command -v compute-sanitizer >/dev/null; then
    step sanitizer compute-sanitizer --error-exitcode 1 "$out/device/bin/test_pmm_product" || true
  else
    printf '%-24s not done: no compute-sanitizer here\n' sanitizer >>"$table"
  fi
  for precision in fp32:1e-5 fp64:1e-10; do
    dtype=${precision%:*}
    step "train_device_$dtype" losses device "$dtype" || true
    step "train_host_$dtype" losses host "$dtype" || true
    step "losses_$dtype" compare_losses "$dtype" "${precision#*:}" || true
    sed 's/^/    /' "$out/losses_$dtype.log" >>"$table"
  done
  # 2^21 vertices and 2^25 edges, each stored in both directions.
  step bench_spmm "${launch[@]}" -n 1 "$out/device/bin/orthant" bench spmm --vertices 2097152 --edges 33554432 \
    --widths 32,64,128,256 --stream-mib 1024 || true
  printf '%-24s not done: it hands OpenBLAS the memory of the products, which lies on the device\n' bench_gemm >>"$table"
  step bench_epoch "${launch[@]}" -n 1 "$out/device/bin/orthant" bench epoch \
    --dataset rmat:vertices=2450000,edges=61000000,features=100,classes=47 --layers 3 --hidden 128 --dropout 0 || true
  for name in bench_spmm bench_epoch; do sed -n 's/^{/    {/p' "$out/$name.log" >>"$table"; done
  printf '%-24s not done: tests/bench/compare_torch.py knows the host only\n' compare_torch >>"$table"
fi

printf '\n'
cat "$table"
[ "$failed" = no ]
