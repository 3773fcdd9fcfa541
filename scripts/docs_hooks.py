# SPDX-License-Identifier: Apache-2.0
"""Hook of mkdocs.yml: the pages of docs/ are written for a reader of the repository, and the site holds docs/ alone.

A link to a file outside docs/, such as ../tests/bench/README.md, becomes its text with the path of the file in the repository. A link to a
file that does not exist is a warning, at which a strict build fails. The word `run` behind the language of a fence, which
scripts/check_docs.py reads, is left out.
"""

import logging
import posixpath
import re
from pathlib import Path

logger = logging.getLogger("mkdocs.plugins.docs_hooks")
LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, config, **_):
    repository = Path(config.config_file_path).parent
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match):
        text, path = match[1], posixpath.normpath(posixpath.join(folder, match[2]))
        if path == "docs" or path.startswith("docs/"):
            return match[0]
        if not (repository / path).exists():
            logger.warning("%s: the link %s names no file of the repository", page.file.src_uri, match[2])
        return f"`{path}`" if text.strip("`") in (path, posixpath.basename(path)) else f"{text} (`{path}`)"

    parts = re.split(r"(^ *```+.*?^ *```+ *$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [LINK.sub(replace, part) for part in parts[::2]]
    return re.sub(r"^( *```+\w+) run *$", r"\1", "".join(parts), flags=re.MULTILINE)
