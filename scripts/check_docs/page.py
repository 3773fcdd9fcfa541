# SPDX-License-Identifier: Apache-2.0
"""A Markdown page: its fenced blocks, paragraphs, tables, inline code, links and headings, each with its line number."""

from __future__ import annotations

import dataclasses
import os
import re

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([^`]*)$")
NOT_RUN = re.compile(r"^\s*<!--\s*not run:\s*(.*?)\s*-->\s*$")
NEEDS = re.compile(r"^\s*<!--\s*needs:\s*(.*?)\s*-->\s*$")
COMMENT = re.compile(r"<!--.*?-->", re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\))?[^()\s<>]*)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
ATTRIBUTE = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)\s*=\s*[\"']([^\"']+)[\"']")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*(\S+)")
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
ANCHOR = re.compile(r"<a\b[^>]*?\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")


@dataclasses.dataclass
class Error:
    page: str
    line: int
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


@dataclasses.dataclass
class Block:
    """A fenced block: `line` is the line of its fence, `lines` are those inside, `reason` is that of a `not run` mark, and
    `needs` are the Python modules of a `needs` mark."""

    line: int
    language: str
    words: list
    lines: list
    reason: str | None
    needs: list

    @property
    def is_shell(self):
        return self.language == "sh"

    @property
    def is_python(self):
        return self.language == "python" and "run" in self.words


@dataclasses.dataclass
class Chunk:
    """A paragraph, an item of a list or a table."""

    line: int
    text: str
    is_table: bool

    def line_at(self, position):
        return self.line + self.text.count("\n", 0, position)


def blank(text):
    """Spaces in place of all but line breaks, so that positions stay."""
    return re.sub(r"[^\n]", " ", text)


def without(pattern, text):
    return pattern.sub(lambda match: blank(match.group()), text)


def modules_of(mark):
    return mark.group(1).replace(",", " ").split()


class Page:
    def __init__(self, root, path):
        self.root = os.path.abspath(root)
        self.path = os.path.abspath(path)
        self.name = os.path.relpath(self.path, self.root)
        with open(self.path, encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        self.blocks, prose = self._split()
        self.prose = "\n".join(prose)

    def error(self, line, text):
        return Error(self.name, line, text)

    def _split(self):
        """The blocks, and the lines with those of blocks left empty."""
        blocks, prose, block, closing, before = [], [], None, None, ""
        for number, line in enumerate(self.lines, 1):
            fence = FENCE.match(line)
            if block is not None:
                prose.append("")
                if fence and fence.group(2).startswith(closing) and not fence.group(3).strip():
                    block, before = None, ""
                else:
                    block.lines.append(line)
            elif fence:
                prose.append("")
                words = fence.group(3).split()
                mark, needs = NOT_RUN.match(before), NEEDS.match(before)
                block = Block(number, words[0] if words else "", words[1:], [], mark and mark.group(1), modules_of(needs) if needs else [])
                closing = fence.group(2)
                blocks.append(block)
            else:
                prose.append(line)
                before = line
        return blocks, prose

    def marks(self):
        """Line and reason of each `not run` mark."""
        found = ((number, NOT_RUN.match(line)) for number, line in enumerate(self.prose.split("\n"), 1))
        return [(number, mark.group(1)) for number, mark in found if mark]

    def needs(self):
        """Line and modules of each `needs` mark."""
        found = ((number, NEEDS.match(line)) for number, line in enumerate(self.prose.split("\n"), 1))
        return [(number, modules_of(mark)) for number, mark in found if mark]

    def code_spans(self):
        """Line and text of each inline code."""
        for chunk in self.chunks(with_headings=True):
            for match in CODE.finditer(without(COMMENT, chunk.text)):
                yield chunk.line_at(match.start()), " ".join(match.group(2).split())

    def chunks(self, with_headings=False):
        found, lines, begin, is_table = [], [], 0, False
        for number, line in enumerate([*self.prose.split("\n"), ""], 1):
            is_row, is_heading = line.lstrip().startswith("|"), bool(HEADING.match(line))
            if lines and (not line.strip() or is_heading or is_row != is_table or ITEM.match(line)):
                found.append(Chunk(begin, "\n".join(lines), is_table))
                lines = []
            if is_heading and with_headings:
                found.append(Chunk(number, line, False))
            if not line.strip() or is_heading:
                continue
            if not lines:
                begin, is_table = number, is_row
            lines.append(line)
        return found

    def links(self):
        """Line and target of each link and image."""
        text = without(COMMENT, self.prose)
        text = "\n\n".join(without(CODE, part) for part in text.split("\n\n"))
        for pattern in (LINK, ATTRIBUTE):
            for match in pattern.finditer(text):
                yield text.count("\n", 0, match.start()) + 1, match.group(1)
        for number, line in enumerate(text.split("\n"), 1):
            match = DEFINITION.match(line)
            if match:
                yield number, match.group(1)

    def anchors(self):
        """What `#...` may name: the headings as GitHub writes them, and anchors of HTML."""
        found = set(ANCHOR.findall(self.prose))
        for line in self.prose.split("\n"):
            heading = HEADING.match(line)
            if not heading:
                continue
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", COMMENT.sub("", heading.group(2)))
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower().replace("`", "")).replace(" ", "-")
            count, name = 0, slug
            while name in found:
                count += 1
                name = f"{slug}-{count}"
            found.add(name)
        return found

    def resolved(self, target):
        """The file or folder that a relative target names, without its anchor."""
        path = target.split("#")[0].split("?")[0]
        if not path:
            return self.path
        folder = self.root if path.startswith("/") else os.path.dirname(self.path)
        return os.path.normpath(os.path.join(folder, path.lstrip("/")))
