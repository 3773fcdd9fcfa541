#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the documentation of docs/ as a site of HTML, which needs no network and no server: open FOLDER/index.html.
#
# usage: scripts/docs.sh [--serve] [FOLDER]
#   FOLDER    where the site goes (default: build-docs in the source tree); what it holds is replaced
#   --serve   instead, show the site at http://127.0.0.1:8000 and build it anew when a page changes
#
# It uses MkDocs and Material for MkDocs of python3 if both are installed. Otherwise it installs the versions below with pip
# into .deps/docs-venv, once.
set -euo pipefail

packages=(mkdocs==1.6.1 mkdocs-material==9.8.2)
limit_mib=20
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fail() {
  printf 'docs: error: %s\n' "$*" >&2
  exit 2
}

site=$repository/build-docs
serve=no
while [ $# -gt 0 ]; do
  case $1 in
  --serve) serve=yes ;;
  -h | --help) sed -n '4,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  -*) fail "unknown option '$1'; see --help" ;;
  *) site=$1 ;;
  esac
  shift
done
case $site in /*) ;; *) site=$PWD/$site ;; esac
if [ "$serve" = no ] && [ -n "$(ls -A "$site" 2>/dev/null)" ] && [ ! -e "$site/search/search_index.json" ]; then
  fail "$site holds something else than a site; name an empty folder"
fi

python=python3
command -v python3 >/dev/null || fail "python3 is not installed"
if ! python3 -c 'import mkdocs, material' 2>/dev/null; then
  environment=${ORTHANT_PREFIX:-$repository/.deps}/docs-venv
  python=$environment/bin/python
  if [ "$(cat "$environment/packages.txt" 2>/dev/null)" != "${packages[*]}" ]; then
    printf 'docs: installing %s into %s\n' "${packages[*]}" "$environment"
    python3 -m venv "$environment" || fail "python3 cannot make a virtual environment; on Debian: apt-get install python3-venv"
    "$python" -m pip install -q --disable-pip-version-check "${packages[@]}" || fail "pip cannot install ${packages[*]}"
    printf '%s\n' "${packages[*]}" >"$environment/packages.txt"
  fi
fi

# Material warns of MkDocs 2; the versions above are 1.
export NO_MKDOCS_2_WARNING=1
if [ "$serve" = yes ]; then
  exec "$python" -m mkdocs serve --config-file "$repository/mkdocs.yml" --dev-addr 127.0.0.1:8000
fi
"$python" -m mkdocs build --strict --clean --config-file "$repository/mkdocs.yml" --site-dir "$site"

size_kib=$(du -sk "$site" | cut -f 1)
[ "$size_kib" -lt $((limit_mib * 1024)) ] || fail "the site has $size_kib KiB, more than $limit_mib MiB"
printf 'docs: %s pages, %s KiB: %s\n' "$(find "$site" -name '*.html' | wc -l)" "$size_kib" "$site/index.html"
