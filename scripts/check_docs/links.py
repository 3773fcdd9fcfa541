# SPDX-License-Identifier: Apache-2.0
"""Relative links and images name files of the repository, and anchors name headings of the page."""

from __future__ import annotations

import os
import re
import urllib.parse

from .page import Page

ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.I)


def check(page):
    """Errors, and how many links were looked up."""
    errors, count = [], 0
    for line, target in page.links():
        if ELSEWHERE.match(target):
            continue
        count += 1
        path = page.resolved(urllib.parse.unquote(target))
        shown = os.path.relpath(path, page.root)
        if shown.startswith(".."):
            errors.append(page.error(line, f"the link {target} leaves the repository"))
        elif not os.path.exists(path):
            errors.append(page.error(line, f"the link {target} names no file: there is no {shown}"))
        elif "#" in target and path.endswith(".md"):
            anchor = urllib.parse.unquote(target.split("#", 1)[1])
            anchors = (page if path == page.path else Page(page.root, path)).anchors()
            if anchor not in anchors:
                errors.append(page.error(line, f"the link {target} names no heading: {shown} has no #{anchor}"))
    return errors, count
