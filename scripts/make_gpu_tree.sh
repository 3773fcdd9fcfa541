#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes one folder that runs on a machine with nothing but a base system, an NVIDIA driver and CUDA's libraries: Orthant
# and its tests for the device and for the host, mpirun with its plug-ins, and every shared library that these need. CUDA's
# own libraries and NCCL stay out: scripts/gpu_check.sh, which travels along, finds those of the machine.
#
# usage: scripts/make_gpu_tree.sh [--device BUILD] [--host BUILD] --out DIR [--archive FILE.tar.xz] [--data DIR]
#   --device BUILD     a build tree with a Kokkos for CUDA, all of it built
#   --host BUILD       a build tree for the host, all of it built; at least one of the two
#   --out DIR          the folder to make; one that this script made before is replaced
#   --archive FILE     also pack it, as .tar.xz
#   --data DIR         folder with datasets/ and reference/ for the tests (default: $ORTHANT_DATA, else ../shared)
#   --datasets LIST    the data sets that travel (default: cora,citeseer,road_luxembourg,slashdot0902)
# It knows Open MPI 4, and leaves out the plug-ins of networks: the tree is for one node. It needs patchelf.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
device=
host=
out=
archive=
data=${ORTHANT_DATA:-}
datasets=cora,citeseer,road_luxembourg,slashdot0902
say() { printf 'make_gpu_tree: %s\n' "$*"; }
fail() {
  printf 'make_gpu_tree: error: %s\n' "$*" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) sed -n '4,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  --device | --host | --out | --archive | --data | --datasets)
    [ -n "${2:-}" ] || fail "$1 needs a value; see --help"
    case $1 in
    --device) device=$2 ;;
    --host) host=$2 ;;
    --out) out=$2 ;;
    --archive) archive=$2 ;;
    --data) data=$2 ;;
    --datasets) datasets=$2 ;;
    esac
    shift 2
    ;;
  *) fail "unknown option '$1'; see --help" ;;
  esac
done
[ -n "$device$host" ] || fail "nothing to pack: give --device BUILD, --host BUILD or both"
[ -n "$out" ] || fail "--out DIR is missing: the folder to make"
for build in $device $host; do
  [ -x "$build/bin/orthant" ] || fail "$build/bin has no orthant: build that tree first"
done
case $archive in '' | *.tar.xz) ;; *) fail "--archive $archive: the name must end in .tar.xz" ;; esac
for program in patchelf strip ldd ompi_info python3 ctest; do
  command -v "$program" >/dev/null || fail "no $program on PATH"
done
if [ -z "$data" ] && [ -d "$repository/../shared/datasets" ]; then data=$repository/../shared; fi
if [ -e "$out" ] && [ ! -e "$out/share/orthant/packed.txt" ]; then
  [ -z "$(ls -A "$out")" ] || fail "$out is there and is no such folder; remove it, or choose another"
fi

rm -rf "$out"
mkdir -p "$out"/{bin,lib,libexec,etc,share/orthant/source}
out=$(cd "$out" && pwd)
share=$out/share/orthant
echo "unfinished" >"$share/packed.txt"

# ---------------------------------------------------------------------------------------------------------------
# Programs, Open MPI's plug-ins, and tools that drivers of tests call
# ---------------------------------------------------------------------------------------------------------------
copy_programs() { # KIND BUILD
  local program
  mkdir -p "$out/libexec/$1"
  for program in "$2"/bin/*; do
    if [ -f "$program" ] && [ -x "$program" ]; then cp "$program" "$out/libexec/$1/"; fi
  done
}
if [ -n "$device" ]; then copy_programs device "$device"; fi
if [ -n "$host" ]; then copy_programs host "$host"; fi

command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
why='there is no nvcc here'
if [ -n "$device" ] && command -v nvcc >/dev/null; then # for a machine whose nvcc lacks the vendor's headers
  env -u ORTHANT_CUDA_KOKKOS -u Kokkos_ROOT ORTHANT_BUILD_DIR="$out/cuda-check" \
    "$repository/scripts/check_cuda.sh" >"$out/cuda-check.log" ||
    { cat "$out/cuda-check.log" >&2 && fail "the plain CUDA check does not build"; }
  if [ -x "$out/cuda-check/vendor_check" ]; then cp "$out/cuda-check/vendor_check" "$out/libexec/device/"; fi
  why=$(grep -m 1 'not checked: anything' "$out/cuda-check.log" || echo 'check_cuda.sh made none')
  rm -rf "$out/cuda-check" "$out/cuda-check.log"
fi
if [ -n "$device" ] && [ ! -x "$out/libexec/device/vendor_check" ]; then say "vendor_check is left out: $why"; fi

path_of() { ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p"; }
mpirun --version | grep -q '(Open MPI) 4\.' || fail "only Open MPI 4 is known here; mpirun tells of another one"
cp -L "$(path_of bindir)/orterun" "$out/bin/mpirun"
cp -L "$(path_of bindir)/orted" "$out/bin/"
networks='ucx|uct|ofi|openib|usnic|psm2?|portals4?|flux|jsm|slurm|gridengine|alps|tm|lsf|simulator|monitoring'
shmem='atomic|memheap|spml|sshmem|scoll'
mkdir "$out/lib/openmpi"
for plugin in "$(path_of pkglibdir)"/mca_*.so; do
  if [[ ! $(basename "$plugin") =~ _($networks)\.so$|^mca_($shmem)_ ]]; then cp "$plugin" "$out/lib/openmpi/"; fi
done
mkdir -p "$out/share/openmpi"
cp -rL "$(path_of pkgdatadir)/." "$out/share/openmpi/"
cat >"$out/etc/openmpi-mca-params.conf" <<'TEXT'
# One node, maybe without ssh and without the right to read another process's memory.
plm = isolated
pml = ob1
btl = self,vader
btl_vader_single_copy_mechanism = none
TEXT
: >"$out/etc/openmpi-default-hostfile"
# A PMIx of its own has plug-ins too.
pmix=$(ldd "$out"/lib/openmpi/mca_pmix_ext*.so 2>/dev/null | sed -n 's/.*libpmix\.so.* => \([^ ]*\) .*/\1/p' | head -n 1)
if [ -n "$pmix" ]; then
  pmix=$(dirname "$(readlink -f "$pmix")")
  cp -rL "$pmix/pmix" "$out/lib/pmix"
  find "$out/lib/pmix" ! -name '*.so' -type f -delete
  if [ -d "$pmix/../share/pmix" ]; then cp -rL "$pmix/../share/pmix" "$out/share/pmix"; fi
fi
# hwloc opens every library in the folder of its plug-ins: it gets one without any.
cat >"$share/environment.txt" <<'TEXT'
OPAL_PREFIX=@TREE@
OPAL_PKGLIBDIR=@TREE@/lib/openmpi
OPAL_SYSCONFDIR=@TREE@/etc
PMIX_PREFIX=@TREE@
PMIX_LIBDIR=@TREE@/lib
PMIX_PKGLIBDIR=@TREE@/lib/pmix
PMIX_DATADIR=@TREE@/share
PMIX_PKGDATADIR=@TREE@/share/pmix
PMIX_SYSCONFDIR=@TREE@/etc
HWLOC_PLUGINS_PATH=@TREE@/etc
TEXT
for tool in h5diff h5dump; do # some tests look closer where these are
  if command -v "$tool" >/dev/null; then cp -L "$(command -v "$tool")" "$out/bin/"; fi
done

# ---------------------------------------------------------------------------------------------------------------
# Shared libraries: what ldd finds, less the C library and what comes with the driver and the CUDA toolkit
# ---------------------------------------------------------------------------------------------------------------
of_c='ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl'
of_machine='libcuda|libcudart|libcublas|libcublasLt|libcusparse|libnvJitLink|libnvrtc|libnccl|libnvidia-.*'
binaries() {
  find "$out/bin" "$out/lib" "$out/libexec" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF && echo "$1"' _ {} \;
}
mapfile -t files < <(binaries)
ldd "${files[@]}" 2>/dev/null | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\|not found\).*/\1 \2/p' | sort -u >"$out/libraries"
while read -r name path; do
  if [[ $name =~ ^($of_c)\.so ]]; then continue; fi
  if [[ $name =~ ^($of_machine)\.so ]]; then
    echo "$name" >>"$out/from_machine"
  elif [ "$path" = "not found" ]; then
    fail "$name is not found on this machine, so it cannot be carried"
  else
    cp -L "$path" "$out/lib/$name"
  fi
done <"$out/libraries"
sort -u "$out/from_machine" 2>/dev/null >"$share/machine-libraries.txt" || :
rm -f "$out/libraries" "$out/from_machine"

# Paths of the build leave the files. DT_RPATH, not RUNPATH: no LD_LIBRARY_PATH of the machine then puts its own in between.
mapfile -t files < <(binaries)
for file in "${files[@]}"; do
  case $file in
  "$out"/bin/*) rpath="\$ORIGIN/../lib" ;;
  "$out"/lib/*/*) rpath="\$ORIGIN/.." ;;
  "$out"/lib/*) rpath="\$ORIGIN" ;;
  *) rpath="\$ORIGIN/../../lib" ;;
  esac
  chmod u+w "$file"
  strip --strip-unneeded "$file"
  patchelf --force-rpath --set-rpath "$rpath" "$file"
done

# ---------------------------------------------------------------------------------------------------------------
# Sources of the scripts and drivers, data, and the list of tests
# ---------------------------------------------------------------------------------------------------------------
for part in scripts src tests datasets docs examples python LICENSE; do cp -r "$repository/$part" "$share/source/"; done
find "$share/source" -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$share/source/tests/bench/results"
builds=()
if [ -n "$device" ]; then builds+=("device=$device"); fi
if [ -n "$host" ]; then builds+=("host=$host"); fi
python3 "$repository/scripts/gpu_check/test_list.py" "${builds[@]}" --packed --source "$repository" >"$share/tests.json"
wanted=$(grep -o '@TREE@/share/orthant/source[^" =]*' "$share/tests.json" | sort -u)
for path in $wanted; do
  [ -e "$out/${path#@TREE@/}" ] || fail "a test names ${path#*/source/}, which does not travel"
done

mkdir -p "$share/data/datasets"
if [ -n "$data" ]; then
  [ -d "$data/datasets" ] || fail "$data has no folder datasets"
  if [ -d "$data/reference" ]; then cp -r --no-preserve=mode "$data/reference" "$share/data/"; fi
  for name in ${datasets//,/ }; do
    [ -d "$data/datasets/$name" ] || fail "$data/datasets has no $name"
    cp -r --no-preserve=mode "$data/datasets/$name" "$share/data/datasets/"
  done
fi
cat >"$out/gpu_check.sh" <<'SCRIPT'
#!/usr/bin/env bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/share/orthant/source/scripts/gpu_check.sh" --tree "$here" "$@"
SCRIPT
chmod +x "$out/gpu_check.sh"

glibc=$(for file in "${files[@]}"; do objdump -T "$file" 2>/dev/null; done |
  sed -n 's/.*(\{0,1\}GLIBC_\([0-9][0-9.]*\)).*/\1/p' | sort -uV | tail -n 1)
{
  printf 'commit %s\n' "$(git -C "$repository" describe --always --dirty 2>/dev/null || echo unknown)"
  printf 'packed %s\n' "$(date -u +%F)"
  printf 'glibc %s\n' "$glibc"
} >"$share/packed.txt"

say "$out (needs glibc $glibc or newer), MiB by part:"
for part in bin lib libexec/device libexec/host share/openmpi share/orthant/source share/orthant/data .; do
  if [ -e "$out/$part" ]; then printf '%10.1f  %s\n' "$(du -sk "$out/$part" | awk '{print $1 / 1024}')" "$part"; fi
done
if [ -s "$share/machine-libraries.txt" ]; then
  say "of the machine it runs on, its device programs want: $(paste -sd ' ' "$share/machine-libraries.txt")"
fi
if [ -n "$archive" ]; then
  mkdir -p "$(dirname "$archive")"
  # A dictionary larger than two programs: what they were linked of in common is stored once.
  tar --sort=name --owner=0 --group=0 --numeric-owner -C "$(dirname "$out")" -c "$(basename "$out")" |
    xz --threads=1 --lzma2=preset=6,dict=192MiB >"$archive"
  say "$archive: $(du -k "$archive" | awk '{printf "%.1f", $1 / 1024}') MiB"
fi
