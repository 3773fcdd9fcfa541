#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/figures/grid.svg: readme_picture.py --orthant PROGRAM [-o FILE.svg]

A grid of 1x2x2x2 ranks, the blocks that rank 0 holds, and what a layer sends. The figures are those of `orthant plan` for a GCN
on a graph with the counts of ogbn-products; the script ends with an error if the plan does not have the calls of the picture.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VERTICES, NONZEROS, WIDTHS = 2449029, 126167053, (100, 128, 128, 47)
SIDE = 2  # ranks along each of X, Y and Z
# The middle layer, in the notation of docs/design.md: (a, b, c) = (z, x, y).
CALLS = (("all_reduce", "z"), ("all_gather", "y"), ("all_reduce", "x"))
INK, FAINT, ORANGE = "#1f2328", "#59636e", "#f0883e"
OF_AXIS = {"x": "#0969da", "y": "#1a7f37", "z": "#8250df"}


def planned(program):
    """The plan, and (operation, axis, bytes of the buffer) of each call of rank 0 in an epoch."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = os.path.join(scratch, "trace.json")
        command = [program, "plan", "--vertices", str(VERTICES), "--nonzeros", str(NONZEROS), "--widths", "-".join(map(str, WIDTHS)), "--dropout", "0",
                   "--grid", "x".join(map(str, (1, SIDE, SIDE, SIDE))), "--schedule", "pmm3d", "--machine", "perlmutter", "--json", "--simulate",
                   "--trace", trace]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        with open(trace, encoding="utf-8") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["pid"] == 0]
    plan = next(found for found in (json.loads(line) for line in lines if line.startswith("{")) if "sent_bytes" in found)
    axes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = sorted((event for event in events if event["ph"] == "X" and "bytes" in event.get("args", {})), key=lambda event: event["ts"])
    return plan, [(event["name"], axes[event["tid"]], event["args"]["bytes"]) for event in slices]


def sent(operation, num_bytes):
    """Bytes that a rank sends in a group of SIDE ranks."""
    return num_bytes * (SIDE - 1) * (2 if operation == "all_reduce" else 1) // SIDE


def layer_of(plan, calls):
    """Bytes that rank 0 sends in the calls of the picture, and a check of the plan."""
    rows, columns = -(-VERTICES // SIDE), WIDTHS[1] // SIDE
    expected = (4 * rows * columns, 4 * columns * columns, 4 * rows * columns)
    wanted = [(*call, num_bytes) for call, num_bytes in zip(CALLS, expected)]
    if not any(calls[place:place + len(wanted)] == wanted for place in range(len(calls))):
        raise SystemExit(f"the plan has no calls {wanted}: {calls}")
    # What runs over all ranks or over data groups ("group") has few bytes.
    total = sum(sent(operation, num_bytes) for operation, axis, num_bytes in calls if axis in OF_AXIS)
    if abs(total - plan["sent_bytes"]) > 1000:
        raise SystemExit(f"the calls send {total} bytes, and the plan says {plan['sent_bytes']}")
    return [sent(call[0], num_bytes) for call, num_bytes in zip(CALLS, expected)]


def shown(num_bytes):
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            number = num_bytes / size
            return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    return f"{num_bytes} B"


class Picture:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, content, size=13, anchor="start", color=INK, bold=False):
        """`content` may hold {x}, {y} and {z}, which get their colors."""
        content = content.replace("&", "&amp;").replace("<", "&lt;")
        for axis, of_axis in OF_AXIS.items():
            content = content.replace("{" + axis + "}", f'<tspan fill="{of_axis}" font-weight="bold">{axis}</tspan>')
        weight = ' font-weight="bold"' if bold else ""
        self.add(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{weight}>{content}</text>')

    def polygon(self, points, fill, edge="#ffffff"):
        self.add(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="{fill}" stroke="{edge}" stroke-linejoin="round"/>')

    def box(self, x, y, width, height, fill, edge="none", radius=0, line=1):
        self.add(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" stroke="{edge}" stroke-width="{line:g}"/>')

    def arrow(self, begin, end, color, both=True, line=3):
        """With a head at its end, and at its beginning if `both`."""
        (x0, y0), (x1, y1) = begin, end
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        ux, uy, head = (x1 - x0) / length, (y1 - y0) / length, 2.9 * line
        first, last = (head * 0.8 if both else 0), length - head * 0.8
        self.add(f'<line x1="{x0 + ux * first:.1f}" y1="{y0 + uy * first:.1f}" x2="{x0 + ux * last:.1f}" y2="{y0 + uy * last:.1f}" '
                 f'stroke="{color}" stroke-width="{line}"/>')
        for (tip_x, tip_y), sign in (((x1, y1), 1), ((x0, y0), -1))[:2 if both else 1]:
            back_x, back_y = tip_x - sign * ux * head, tip_y - sign * uy * head
            self.polygon([(tip_x, tip_y), (back_x - uy * head * 0.55, back_y + ux * head * 0.55), (back_x + uy * head * 0.55, back_y - ux * head * 0.55)],
                         color, color)

    def svg(self):
        description = "A grid of 1x2x2x2 ranks, the blocks of A, F and W that rank 0 holds, and what a layer sends"
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                f'role="img" aria-label="{description}" font-family="Helvetica, Arial, sans-serif">\n<title>{description}</title>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def draw_grid(picture, left, top):
    """Eight cubes; rank 0 is the nearest at the top. Its arrows lead to the other rank of its group along each axis."""
    edge, step = 60, 90

    def at(x, y, z, corner=(0, 0, 0)):
        # x leads away to the left, y away to the right, z down.
        along = [step * coordinate + edge * part for coordinate, part in zip((x, y, z), corner)]
        return left + (along[1] - along[0]) * 0.866, top - (along[0] + along[1]) * 0.5 + along[2]

    def face(x, y, z, corners):
        return [at(x, y, z, corner) for corner in corners]

    for x, y, z in sorted(((x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)), key=lambda place: (-place[2], -place[0] - place[1])):
        is_own = (x, y, z) == (0, 0, 0)
        roof, sides = ("#ffc680", (ORANGE, "#d9722b")) if is_own else ("#eef1f4", ("#d5dbe1", "#c0c8d0"))
        picture.polygon(face(x, y, z, ((0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1))), sides[0])
        picture.polygon(face(x, y, z, ((0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1))), sides[1])
        picture.polygon(face(x, y, z, ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0))), roof)
        if z == 0:
            center = at(x, y, z, (0.5, 0.5, 0))
            if not is_own:
                away = at(x, y, z, (0.5 + 0.22 * (x - y), 0.5 + 0.22 * (y - x), 0)) if x != y else center
                picture.text(away[0], away[1] + 5, str(y + SIDE * (x + SIDE * z)), 14, "middle", INK)
        elif x == 0 or y == 0:
            corner = (0.5, 0, 0.5) if y == 0 and x == 1 else (0, 0.5, 0.5)
            if x + y == 1:
                center = at(x, y, z, corner)
                picture.text(center[0], center[1] + 5, str(y + SIDE * (x + SIDE * z)), 14, "middle", INK)
    lower = at(0, 0, 1, (0, 0.5, 0.62))
    picture.text(lower[0], lower[1] + 5, str(SIDE * SIDE), 14, "middle", INK)
    picture.text(at(0, 0, 0)[0], at(0, 0, 0, (0.5, 0.5, 0))[1] + 5, "0", 16, "middle", INK, bold=True)
    for axis, begin, there, end, beside in (("x", (0.8, 0.5, 0), (1, 0, 0), (0.28, 0.5, 0), (4, -10)), ("y", (0.5, 0.8, 0), (0, 1, 0), (0.5, 0.28, 0), (-4, -10)),
                                            ("z", (0.5, 0, 0.68), (0, 0, 1), (0.5, 0, 0.42), (-12, -6))):
        (x0, y0), (x1, y1) = at(0, 0, 0, begin), at(*there, end)
        picture.arrow((x0, y0), (x1, y1), OF_AXIS[axis])
        picture.text((x0 + x1) / 2 + beside[0], (y0 + y1) / 2 + beside[1] + (9 if axis == "z" else 0), "{" + axis + "}", 15, "middle")


def draw_matrix(picture, x, y, size, cells, name, lines):
    """A matrix in 2 x 2 blocks, the first of which is rank 0's, with `cells`: the letters of the axes of rows and columns."""
    width, height = size
    picture.box(x, y, width, height, "#eef1f4", "#aab4be")
    picture.box(x, y, width / 2, height / 2, ORANGE)
    picture.add(f'<path d="M{x + width / 2:g} {y}v{height}M{x} {y + height / 2:g}h{width}" stroke="#aab4be" fill="none"/>')
    rows, columns = cells
    picture.add(f'<path d="M{x - 7} {y + 1}v{height - 2}" stroke="{OF_AXIS[rows]}" stroke-width="3"/>')
    picture.add(f'<path d="M{x + 1} {y - 7}h{width - 2}" stroke="{OF_AXIS[columns]}" stroke-width="3"/>')
    picture.text(x - 14, y + height / 2 + 5, "{" + rows + "}", 14, "end")
    picture.text(x + width / 2, y - 13, "{" + columns + "}", 14, "middle")
    picture.text(x + width + 12, y + 11, name, 15, bold=True)
    for number, line in enumerate(lines):
        picture.text(x + width + 12, y + 31 + 18 * number, line, 13, color=INK if line[0].isdigit() or line[:2] == "x " else FAINT)


def draw(plan, layer):
    picture = Picture(900, 490)
    rows, columns = -(-VERTICES // SIDE), WIDTHS[1] // SIDE
    picture.box(0.5, 0.5, 899, 489, "#ffffff", "#d0d7de", 12)

    picture.text(24, 36, "Grid 1x2x2x2: eight ranks", 16, bold=True)
    draw_grid(picture, 158, 206)
    picture.text(24, 398, "Each rank is in one group per axis {x}, {y}, {z}.", 13)
    picture.text(24, 416, "The first number is the data axis, which", 13)
    picture.text(24, 434, "repeats the grid for mini-batches.", 13)

    picture.text(330, 36, "What rank 0 holds in a layer (orange)", 16, bold=True)
    draw_matrix(picture, 366, 84, (110, 110), "yz", "A", ["adjacency", f"{rows:,}", f"x {rows:,}", "replicated", "along {x}"])
    draw_matrix(picture, 604, 84, (36, 110), "zx", "F", ["features", f"{rows:,}", f"x {columns}", "replicated", "along {y}"])
    draw_matrix(picture, 768, 84, (36, 36), "xz", "W", ["weights", f"{columns} x {columns}", "split", "along {y}"])

    picture.text(330, 244, "What rank 0 computes and sends in the forward pass", 16, bold=True)
    steps = (("1.  H = A F", "sparse product of blocks", "all-reduce along {z}", layer[0]),
             ("2.  W", "pieces of the block", "all-gather along {y}", layer[1]),
             ("3.  Q = H W", "dense product of blocks", "all-reduce along {x}", layer[2]))
    for number, (title, work, call, num_bytes) in enumerate(steps):
        x = 330 + 188 * number
        picture.box(x, 260, 170, 112, "#f6f8fa", "#d0d7de", 8)
        picture.text(x + 12, 284, title, 15, bold=True)
        picture.text(x + 12, 306, work, 12, color=FAINT)
        picture.text(x + 12, 332, call, 13)
        picture.text(x + 12, 356, f"{shown(num_bytes)} per rank", 15, bold=True)
        if number < 2:
            picture.arrow((x + 172, 316), (x + 186, 316), FAINT, both=False, line=2)
    picture.text(330, 398, "The next layer reads Q as its F where it lies: the axes exchange their roles,", 13)
    picture.text(330, 416, "and no data moves between layers. The backward pass uses the same blocks.", 13)
    picture.text(330, 434, f"An epoch of three layers sends {shown(plan['sent_bytes'])} per rank; all arrays take {shown(plan['array_bytes'])} per rank.", 13)
    picture.add('<path d="M24 450h852" stroke="#d0d7de"/>')
    picture.text(24, 472, f"Predicted by orthant plan, schedule pmm3d, fp32: GCN {'-'.join(map(str, WIDTHS))}, middle layer, "
                 f"{VERTICES:,} vertices and {NONZEROS:,} non-zeros", 12, color=FAINT)
    return picture.svg()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--orthant", required=True, metavar="PROGRAM")
    parser.add_argument("-o", "--output", default=os.path.join(ROOT, "docs", "figures", "grid.svg"), metavar="FILE.svg")
    asked = parser.parse_args()
    plan, calls = planned(asked.orthant)
    with open(asked.output, "w", encoding="utf-8") as file:
        file.write(draw(plan, layer_of(plan, calls)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
