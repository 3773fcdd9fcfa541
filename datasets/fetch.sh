#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches a data set, unpacks it, partitions it, and compares the counts of the store with those that are published.
# Everything that is special about a data set is in NAME/recipe.sh; NAME/README.md explains it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'END'
usage: datasets/fetch.sh NAME [--output DIR] [--from DIR|URL] [--counts FILE] [--force]
       datasets/fetch.sh --list

Makes the store DIR/NAME.h5. Downloads, and what is unpacked of them, go to DIR/NAME.files, which may be deleted
afterwards. A download that was interrupted goes on where it stopped; a store that is complete is left alone.

  --output DIR     where the store goes (default: the current folder)
  --from DIR|URL   take the archives, under their own names, from this folder or from below this address
  --counts FILE    expect the counts in FILE, lines "name=number", instead of the recipe's
  --force          make everything anew
  --list           show all data sets

ORTHANT is the program and may have a launcher in front (ORTHANT="mpirun -n 8 orthant"; default: orthant in PATH).
Exit status: 0 done; 2 something is wrong, and one line says what; otherwise that of orthant.
END
}

fail() {
  printf 'fetch: error: %s\n' "$*" >&2
  exit 2
}

need() { # PROGRAM
  command -v "$1" >/dev/null || fail "$1 is not installed"
}

known_names() {
  local recipe
  for recipe in "$here"/*/recipe.sh; do basename "$(dirname "$recipe")"; done
}

# Sets what recipes set: where archives are (base_url, archives; none if the files lie beside the recipe), what in
# them is the graph (input), how it is partitioned (options), and what to expect.
load_recipe() { # NAME
  name=$1 base_url='' input=. edges=- licence='' download=-
  archives=() options=() programs=()
  unset -f prepare
  unset counts
  declare -gA counts=()
  # shellcheck source=/dev/null
  source "$here/$1/recipe.sh"
}

list() {
  local format='%-16s %11s %13s %9s %8s  %-8s  %s\n' name
  # shellcheck disable=SC2059
  printf "$format" name vertices edges features classes download licence
  for name in $(known_names); do
    load_recipe "$name"
    # shellcheck disable=SC2059
    printf "$format" "$name" "${counts[vertices]}" "$edges" "${counts[features]:--}" "${counts[classes]:--}" "$download" \
      "$licence"
  done
}

# As long as each attempt gets further, a broken connection is taken up again.
download() { # URL FILE
  local meter=--silent code status size before
  [ ! -t 2 ] || meter=--progress-bar
  before=$(stat -c %s "$2" 2>/dev/null || echo 0)
  while true; do
    status=0
    code=$(curl --fail --location "$meter" --connect-timeout 30 --retry 3 --retry-delay 2 --continue-at - \
      --write-out '%{http_code}' --output "$2" "$1") || status=$?
    case $status:$code in
      0:*) return ;;
      22:416) return ;; # nothing is left to fetch
      33:*) rm -f "$2" ;; # this server cannot go on in the middle
    esac
    size=$(stat -c %s "$2" 2>/dev/null || echo 0)
    [ "$status" = 33 ] || [ "$size" -gt "$before" ] || break
    before=$size
  done
  case $status in
    6 | 7) fail "$name: cannot reach $1; is there a network here? (--from takes the archives from a folder)" ;;
    22) fail "$name: cannot fetch $1: the server answers $code" ;;
    23) fail "$name: cannot write $2; is the disk full?" ;;
    *) fail "$name: cannot fetch $1: curl ends with status $status; another attempt goes on from there" ;;
  esac
}

# Sets `archive` to where the file is.
fetch_archive() { # FILE
  if [ -n "$from" ] && [ -d "$from" ]; then
    archive=$from/$1
    [ -r "$archive" ] || fail "$name: $from has no $1"
    return
  fi
  archive=$files/$1
  [ ! -e "$archive" ] || [ -n "$force" ] || return 0
  local address=${from:-$base_url}
  [ -n "$address" ] || fail "$name has no public download that is known; see $here/$name/README.md, then use --from DIR"
  need curl
  printf 'fetching %s\n' "$address/$1"
  download "$address/$1" "$archive.part"
  mv "$archive.part" "$archive"
}

unpack() { # ARCHIVE FOLDER
  local status=0 log=$files/unpack.log
  case $1 in
    *.zip)
      need unzip
      unzip -q -o "$1" -d "$2" </dev/null >"$log" 2>&1 || status=$?
      [ "$status" != 1 ] || status=0 # warnings
      ;;
    *.tar.gz | *.tgz)
      need tar
      tar -xzf "$1" -C "$2" --no-same-owner >"$log" 2>&1 || status=$?
      ;;
    *.deb)
      need ar
      need xz
      { ar p "$1" data.tar.xz | tar -xJ -C "$2" --no-same-owner; } >"$log" 2>&1 || status=$?
      ;;
    *) ln -s "$(realpath "$1")" "$2/" || status=$? ;;
  esac
  [ "$status" = 0 ] ||
    fail "$name: cannot unpack $1: $(grep -m 1 . "$log" | cut -c 1-120) (if it is damaged, delete it and try again)"
  rm -f "$log"
}

# Everything goes to a folder of the data set's name, which is there only when it is complete.
unpack_all() { # FOLDER
  [ ! -d "$1" ] || [ -n "$force" ] || return 0
  rm -rf "$1" "$1.partial"
  mkdir -p "$1.partial" || fail "cannot make the folder $1.partial"
  local file program
  for program in "${programs[@]}"; do need "$program"; done
  for file in "${archives[@]}"; do
    fetch_archive "$file"
    printf 'unpacking %s\n' "$archive"
    unpack "$archive" "$1.partial"
  done
  if declare -F prepare >/dev/null; then
    prepare "$1.partial" 2>/dev/null || fail "$name: the files in $1.partial are not what was expected"
  fi
  mv "$1.partial" "$1"
}

# The counts of a store, a line each. Nonzeros are those of A + I.
counts_of() { # STORE
  local text status=0
  text=$("${orthant[@]}" info "$1") || status=$?
  [ "$status" = 0 ] || exit "$status"
  awk '{ gsub(",", "") }
    $1 == "vertices" { vertices = $2; print "vertices=" $2 }
    $1 == "entries" { printf "nonzeros=%.0f\n", $2 - $5 + vertices }
    $1 == "features" { print "features=" ($3 == "" ? 0 : $3) }
    $1 == "labels" { print "classes=" ($3 == "" ? 0 : $3) }
    $1 == "split" && $2 != "none" { print "train=" $(NF - 4) "\nvalid=" $(NF - 2) "\ntest=" $NF }' <<<"$text"
}

read_counts() { # FILE
  [ -r "$1" ] || fail "cannot read the counts in $1"
  counts=()
  local line
  while read -r line; do
    [[ $line =~ ^(vertices|nonzeros|features|classes|train|valid|test)=([0-9]+)$ ]] ||
      fail "$1: '$line' is not vertices, nonzeros, features, classes, train, valid or test = number"
    counts[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done <"$1"
}

# Prints what agrees; fails with all that does not, and with the advice.
check_counts() { # STORE ADVICE
  local text key value agree='' differ=''
  declare -A found=()
  text=$(counts_of "$1") || exit $?
  while IFS='=' read -r key value; do found[$key]=$value; done <<<"$text"
  for key in vertices nonzeros features classes train valid test; do
    [ -n "${counts[$key]:-}" ] || continue
    if [ "${found[$key]:-none}" = "${counts[$key]}" ]; then
      agree+=", $key ${counts[$key]}"
    else
      differ+=", $key ${found[$key]:-none} instead of ${counts[$key]}"
    fi
  done
  [ -z "$differ" ] || fail "$name: unexpected counts: ${differ#, }; $2"
  printf 'counts       as expected: %s\n' "${agree#, }"
}

name='' output=. from='' counts_file='' force=''
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      usage
      exit
      ;;
    --list)
      list
      exit
      ;;
    --force) force=yes ;;
    --output | --from | --counts)
      [ $# -gt 1 ] || fail "$1 needs a value"
      case $1 in
        --output) output=$2 ;;
        --from) from=${2%/} ;;
        --counts) counts_file=$2 ;;
      esac
      shift
      ;;
    -*) fail "unknown option $1; --help lists them" ;;
    *)
      [ -z "$name" ] || fail "one data set at a time: $name or $1"
      name=$1
      ;;
  esac
  shift
done
[ -n "$name" ] || fail "name a data set; --list shows them"
[[ $name != */* && -r $here/$name/recipe.sh ]] || fail "unknown data set '$name'; known: $(known_names | paste -sd ' ')"
[[ -z $from || $from == *://* || -d $from ]] || fail "--from names neither a folder nor an address: $from"
load_recipe "$name"
[ -z "$counts_file" ] || read_counts "$counts_file"
orthant=("${ORTHANT:-orthant}")
[ -x "${orthant[0]}" ] || read -ra orthant <<<"${orthant[0]}"
command -v "${orthant[0]}" >/dev/null || fail "there is no program '${orthant[0]}'; ORTHANT names it"
mkdir -p "$output" 2>/dev/null || fail "cannot make the folder $output"

store=$output/$name.h5 unchecked=$output/$name.unchecked.h5 files=$output/$name.files
if [ -e "$store" ] && [ -z "$force" ]; then
  printf '%s is there\n' "$store"
  check_counts "$store" "--force makes the store anew"
  exit
fi

graph=$here/$name/$input
if [ "${#archives[@]}" -gt 0 ]; then
  unpack_all "$files/$name"
  graph=$files/$name/$input
fi
[ -e "$graph" ] || fail "$name: there is no $graph; the archive has another layout than expected"
status=0
"${orthant[@]}" partition --input "$graph" --output "$unchecked" --force "${options[@]}" || status=$?
[ "$status" = 0 ] || exit "$status"
check_counts "$unchecked" "the store is left as $unchecked"
mv "$unchecked" "$store"
printf '%s is complete\n' "$store"
