#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of the documentation: check_docs.py --orthant PROGRAM [PAGE..]

run      ```sh blocks run, in their order, in one empty folder per page (`bash -e`), and so do ```python run blocks if NumPy is
         installed. A comment directly above the fence leaves a block out: <!-- not run: REASON -->
         or runs it only if Python modules are installed: <!-- needs: numpy --> or <!-- needs: numpy, scipy -->
         These modules are imported by the `python3` of the page for ```sh, and by the Python of this script for ```python run.
links    relative links, images and anchors lead somewhere
options  options of orthant in the pages are in its help, and docs/command_line.md has all of the help. Options of other programs
         that a page names alone: <!-- options of other programs: --name .. -->
claims   figures beside a link to a file of tests/bench/results are in that file (scripts/check_docs/claims.py has the rule)

Each error is one line, PAGE:LINE: what is wrong, with the last lines of output below it if a command fails. The status is 1 if
there are errors. Without --orthant, only links and claims are checked. With `--only run` and one page, the status is 77 if no
block ran and at least one needs a module that is missing, so that ctest reports the test as skipped.
"""

import argparse
import glob
import os
import signal
import sys

from check_docs import claims, links, options, run
from check_docs.page import Page

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77
RULES = ("run", "links", "options", "claims")
LISTING = os.path.join("docs", "command_line.md")
DEFAULT = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/README.md", "python/README.md")


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__.split("\n", 2)[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"default: {', '.join(DEFAULT)}")
    parser.add_argument("--orthant", metavar="PROGRAM", help="the program that blocks run and whose help is read")
    parser.add_argument("--only", choices=RULES, action="append", help="checks only this; may be repeated")
    parser.add_argument("--list", action="store_true", help="lists the blocks of shell and Python and what becomes of them, without checks")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="ends a page that runs for longer (120)")
    parser.add_argument("--root", default=ROOT, help="root of the repository (default: the one of this script)")
    found = parser.parse_args(arguments)
    if found.orthant is None and not found.list and set(found.only or ()) & {"run", "options"}:
        parser.error("--only run and --only options need --orthant")
    for path in found.pages:
        if not os.path.isfile(path):
            parser.error(f"there is no page '{path}'")
    if found.orthant is not None and not os.access(found.orthant, os.X_OK):
        parser.error(f"--orthant: '{found.orthant}' is no program")
    if found.orthant is not None and os.path.basename(found.orthant) != "orthant":
        parser.error(f"--orthant: the program must have the name orthant, not '{os.path.basename(found.orthant)}'")
    return found


def default_pages(root):
    paths = (path for pattern in DEFAULT for path in sorted(glob.glob(os.path.join(root, pattern), recursive=True)))
    return [path for path in paths if os.path.isfile(path)]


def list_blocks(pages, program):
    for page in pages:
        runs, others, errors = run.plan(page, program)
        reasons = {block.line: f"not run: {reason}" for block, reason in others}
        for block in sorted([*runs, *(block for block, _ in others)], key=lambda block: block.line):
            print(f"{page.name}:{block.line}: {block.language}: {reasons.get(block.line, 'runs')}")
        for error in errors:
            print(error)


def main(arguments):
    asked = parsed(arguments)
    pages = [Page(asked.root, path) for path in asked.pages or default_pages(asked.root)]
    if not pages:
        print("there are no pages")
        return 1
    if asked.list:
        list_blocks(pages, asked.orthant)
        return 0
    rules = set(asked.only or (RULES if asked.orthant else ("links", "claims")))
    help_ = options.Help(os.path.abspath(asked.orthant)) if "options" in rules else None
    scripts = options.of_scripts(asked.root) if help_ else frozenset()
    num_missing = 0  # blocks that need a module that is missing
    num_errors, counts = 0, dict.fromkeys(("blocks run", "not run", "links", "options", "figures"), 0)

    def report(errors):
        nonlocal num_errors
        num_errors += len(errors)
        for error in errors:
            print(error, flush=True)

    for page in pages:
        if "links" in rules:
            errors, count = links.check(page)
            counts["links"] += count
            report(errors)
        if help_:
            errors, count = options.check(page, help_, scripts)
            counts["options"] += count
            report(errors)
            if page.name == LISTING:
                errors, count = options.check_listing(page, help_)
                counts["options"] += count
                report(errors)
        if "claims" in rules:
            errors, count = claims.check(page)
            counts["figures"] += count
            report(errors)
        if "run" in rules:
            errors, count, others = run.check(page, asked.orthant, asked.limit)
            for block, reason in others:
                print(f"{page.name}:{block.line}: not run: {reason}", flush=True)
            counts["blocks run"] += count
            counts["not run"] += len(others)
            num_missing += sum(block.reason is None for block, _ in others)
            report(errors)
    print(f"{len(pages)} pages: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + f"; {num_errors} errors")
    if num_errors:
        return 1
    is_skipped = rules == {"run"} and len(asked.pages) == 1 and counts["blocks run"] == 0 and num_missing > 0
    return SKIPPED if is_skipped else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what a page has started ends, too
    sys.exit(main(sys.argv[1:]))
