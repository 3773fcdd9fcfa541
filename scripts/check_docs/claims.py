# SPDX-License-Identifier: Apache-2.0
"""Figures beside a link to a file of tests/bench/results occur in that file.

A paragraph, an item of a list or a table that has such links is checked against the files linked; a table without one takes the
links of the paragraph directly above it, or else directly below. Inline code, dates, names such as H100 and whole numbers up to
10 are left out. A figure with a decimal point, or of 100 and more, may be the rounding of one in the file. Directly behind a figure,

  <!-- derived: 56.43 / 45.26 -->   computes it from figures of the file (constants: up to 10, 100 and 1000)
  <!-- given: REASON -->            says why it is not from the file
"""

from __future__ import annotations

import ast
import operator
import os
import re

from .page import CODE, COMMENT, LINK, blank, without

RESULTS = os.path.join("tests", "bench", "results") + os.sep
IN_FILES = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
FIGURE = re.compile(r"(?<![\w.,^])(?<![A-Za-z][-_/])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=(?:ms|us|s|[kMGT]i?B|[kMGTB]|x|th)?(?![\w^]|\.\d|,\d{3}))")
DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
LEFT_OUT = (DATE, re.compile(r"\barXiv[: ]\d{4}\.\d{4,5}"), re.compile(r"\d+(?:x\d+)+\b"),
            re.compile(r"\b\d+(?:-\d+){2,}\b"), re.compile(r"https?://\S+"), re.compile(r"\b\d+(?:\.\d+){2,}\b"))
MARK = re.compile(r"<!--\s*(derived|given):\s*(.*?)\s*-->", re.S)
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(text):
    return float(text.replace(",", ""))


def half_step(text):
    """Half a unit of the last place of a number as written."""
    digits, _, exponent = text.replace(",", "").lower().partition("e")
    places = len(digits.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - places)


def is_near(text, exact):
    """Whether the number as written is `exact`, rounded."""
    return abs(value_of(text) - exact) <= half_step(text) * (1 + 1e-9)


class Results:
    """The numbers of one or more results files."""

    def __init__(self, paths):
        self.names = [os.path.basename(path) for path in paths]
        self.written = set()
        for path in paths:
            with open(path, encoding="utf-8") as file:
                self.written |= set(IN_FILES.findall(without(DATE, file.read())))
        self.values = {value_of(text) for text in self.written}

    def has(self, text):
        value = value_of(text)
        if value in self.values:
            return True
        if "." not in text and value < 100:
            return False
        return any(is_near(text, exact) for exact in self.values)

    def evaluate(self, expression):
        """Its value; ValueError if a number of it is not in the files or it is no arithmetic."""
        def walk(node):
            if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
                return OPERATIONS[type(node.op)](walk(node.left), walk(node.right))
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                return -walk(node.operand)
            if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
                if node.value not in self.values and node.value not in (*range(11), 100, 1000):
                    raise ValueError(f"{node.value} is not in {self.shown()}")
                return float(node.value)
            raise ValueError("it is not made of numbers, + - * / and parentheses")
        try:
            return walk(ast.parse(re.sub(r"(?<=\d),(?=\d{3})", "", expression).strip(), mode="eval").body)
        except (SyntaxError, ZeroDivisionError) as error:
            raise ValueError(str(error)) from error

    def shown(self):
        return " and ".join(self.names)


def results_of(page, text):
    """The results files that a text links, without repeats; a link that names no file is an error of the links."""
    paths = []
    for target in LINK.findall(without(CODE, text)):
        path = page.resolved(target)
        if os.path.relpath(path, page.root).startswith(RESULTS) and path.endswith(".md") and path not in paths and os.path.exists(path):
            paths.append(path)
    return paths


def figures_of(text):
    """(position, figure, mark or None): numbers of a chunk outside of code, links and what is left out, and the mark behind each."""
    marks = [(match.start(), match.group(1), match.group(2)) for match in MARK.finditer(text)]
    plain = without(COMMENT, text)
    plain = re.sub(r"\]\([^)]*\)", lambda match: blank(match.group()), without(CODE, plain))
    for pattern in LEFT_OUT:
        plain = without(pattern, plain)
    plain = re.sub(r"^\s*\d+[.)]\s", lambda match: blank(match.group()), plain)
    figures = [(match.start(1), match.group(1)) for match in FIGURE.finditer(plain)]
    owned = {}
    for place, kind, argument in marks:
        before = [start for start, _ in figures if start < place]
        owned[before[-1] if before else -1] = (kind, argument)
    return [(start, figure, owned.get(start)) for start, figure in figures]


def paths_for(page, chunks, number):
    chunk = chunks[number]
    paths = results_of(page, chunk.text)
    if not paths and chunk.is_table:
        for neighbor in (number - 1, number + 1):
            if not paths and 0 <= neighbor < len(chunks) and not chunks[neighbor].is_table and _adjacent(page, chunk, chunks[neighbor]):
                paths = results_of(page, chunks[neighbor].text)
    return paths


def _adjacent(page, one, other):
    """Whether only empty lines lie between two chunks."""
    first, second = sorted((one, other), key=lambda chunk: chunk.line)
    between = page.lines[first.line + first.text.count("\n"):second.line - 1]
    return all(not line.strip() for line in between)


def check(page):
    """Errors, and how many figures were looked up."""
    errors, count = [], 0
    chunks = page.chunks()
    for number, chunk in enumerate(chunks):
        paths = paths_for(page, chunks, number)
        if not paths:
            continue
        results = Results(paths)
        for place, figure, mark in figures_of(chunk.text):
            line = chunk.line_at(place)
            if mark and mark[0] == "given":
                if not mark[1]:
                    errors.append(page.error(line, f"the mark behind {figure} gives no reason"))
                continue
            if mark is None and "." not in figure and value_of(figure) <= 10:
                continue
            count += 1
            if mark is None:
                if not results.has(figure):
                    errors.append(page.error(line, f"{figure} is not in {results.shown()}"))
                continue
            try:
                exact = results.evaluate(mark[1])
            except ValueError as error:
                errors.append(page.error(line, f"the mark behind {figure}, 'derived: {mark[1]}': {error}"))
                continue
            if not is_near(figure, exact):
                errors.append(page.error(line, f"{figure} is not {mark[1]} = {exact:.6g}"))
    return errors, count
