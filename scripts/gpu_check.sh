#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks and measures Orthant on a machine with an NVIDIA device, from a source tree with a Kokkos for CUDA (it builds) or
# from a tree that make_gpu_tree.sh packed (it does not). Ends with one table. Its parts are in gpu_check; --help tells more.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v python3 >/dev/null; then
  echo "gpu_check: error: no python3 on PATH" >&2
  exit 2
fi
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/gpu_check" "$@"
