#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orthant plot: plots.py PROGRAM FOLDER_OF_KARATE

The curves are measured in the SVG by the numbers of its axes, and compared with the metrics.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

from program import Failure, attempt_all, expect_mistake, expect_success, require, run

KARATE = sys.argv[2]
SVG = "{http://www.w3.org/2000/svg}"
SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}


def check(condition, what):
    if not condition:
        raise Failure(what)


def number(text):
    return float(text[:-1]) * SUFFIXES[text[-1]] if text[-1] in SUFFIXES else float(text)


def scale(ticks):
    """From places to values, by the first and the last tick (place, value)."""
    (a, x), (b, y) = ticks[0], ticks[-1]
    check(len(ticks) >= 3 and a != b, f"an axis with few numbers: {ticks}")
    for place, value in ticks:
        check(abs(x + (value - x) - (x + (place - a) * (y - x) / (b - a))) <= 2e-3 * abs(y - x), f"{value} is not at its place")
    return lambda place: x + (place - a) * (y - x) / (b - a)


def read(path):
    """Panels as {title: [(class, dashes, points)]}, the texts, the title of x. Points are in the units of the axes."""
    root = ElementTree.parse(path).getroot()
    panels, now = {}, None
    texts, legend = [], []
    for element in root:
        kind = element.tag.removeprefix(SVG)
        if kind == "text":
            texts.append(element.text)
            if element.get("font-weight") == "bold":
                now = {"x": [], "y": [], "curves": []}
                panels[element.text] = now
            elif now is not None and element.get("text-anchor") == "end":
                now["y"].append((float(element.get("y")) - 4.5, number(element.text)))
            elif now is not None and re.fullmatch(r"-?[0-9.]+[kMG]?", element.text):
                now["x"].append((float(element.get("x")), number(element.text)))
            elif now is None:
                legend.append(element.text)
        elif kind == "polyline":
            now["curves"].append((element.get("class").split()[0], element.get("stroke-dasharray"),
                                  [tuple(map(float, point.split(","))) for point in element.get("points").split()]))
    for title, panel in panels.items():
        to_x, to_y = scale(panel["x"]), scale(panel["y"])
        panels[title] = [(name, dashes, [(to_x(x), to_y(y)) for x, y in points]) for name, dashes, points in panel["curves"]]
    return panels, legend, texts[-1]


def expect_points(found, expected, what):
    """To half a pixel or so: 1/250 of what the curve spans."""
    check(len(found) == len(expected), f"{what} has {len(found)} points, not {len(expected)}")
    for axis in (0, 1):
        values = [point[axis] for point in expected]
        span = max(values) - min(values) or abs(values[0])
        worst = max(abs(a[axis] - b[axis]) for a, b in zip(found, expected))
        check(worst <= span / 250, f"{what}: {worst} off in {'xy'[axis]}, of {span}")


def write(path, records):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def epochs(first, last, loss, **more):
    return [{"event": "epoch", "epoch": i, "loss": loss(i), "seconds": 0.5, **more} for i in range(first, last + 1)]


def draws_a_training(ranks):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        expect_success(1, ["partition", "--input", KARATE, "-o", at("g.h5")])
        expect_success(1, ["train", "--graph", at("g.h5"), "--epochs", "12", "--eval-every", "3", "--metrics", at("m.jsonl")])
        for over in ("steps", "seconds"):
            done = expect_success(ranks, ["plot", at("m.jsonl"), "-o", at(f"{over}.svg"), "--over", over])
            check(done.stdout == f"1 run in 3 panels: {at(over)}.svg\n", f"says {done.stdout!r}")
            panels, legend, x_title = read(at(f"{over}.svg"))
            check(list(panels) == ["loss, nats", "accuracy, %", "seconds per epoch"], f"panels {list(panels)}")
            check(legend == ["m", "train", "validation", "test"], f"legend {legend}")
            check(x_title == {"steps": "epoch", "seconds": "training time, s"}[over], f"x is {x_title}")
            with open(at("m.jsonl"), encoding="utf-8") as file:
                lines = [line for line in map(json.loads, file) if line["event"] == "epoch"]
            xs = [line["epoch"] if over == "steps" else sum(each["seconds"] for each in lines[:i + 1]) for i, line in enumerate(lines)]
            curves = {(title, dashes): points for title, of in panels.items() for _, dashes, points in of}
            for title, dashes, key, factor in (("loss, nats", None, "loss", 1), ("loss, nats", "7 4", "val_loss", 1),
                                               ("accuracy, %", None, "train_acc", 100), ("accuracy, %", "7 4", "val_acc", 100),
                                               ("accuracy, %", "1.5 3.5", "test_acc", 100), ("seconds per epoch", None, "seconds", 1)):
                expected = [(x, factor * line[key]) for x, line in zip(xs, lines) if key in line]
                expect_points(curves[title, dashes], expected, f"{key} over {over}")


def watches_a_training(ranks):
    """The page says what it waits for, follows the metrics, and ends with them; the same page is written once without --watch."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        refresh = '<meta http-equiv="refresh" content="1"/>'

        def page_with(text):
            for _ in range(600):
                if os.path.exists(at("o.html")):
                    with open(at("o.html"), encoding="utf-8") as file:
                        page = file.read()
                    if text in page:
                        return page
                time.sleep(0.05)
            raise Failure(f"no page with {text!r}")

        write(at("m.jsonl"), [{"event": "run", "configuration": {"epochs": 4, "seeds": 2}}])
        watching = subprocess.Popen([sys.argv[1], "plot", at("m.jsonl"), "-o", at("o.html"), "--watch", "1"],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            check(refresh in page_with("Waits for the first epoch"), "a page that waits does not load itself anew")
            records = [{"event": "run", "configuration": {"epochs": 4, "seeds": 2}},
                       *epochs(1, 3, lambda i: 0.5 / i, val_acc=0.75, sent_bytes=3 * 2**20, phases={"forward": 0.2, "loss": 0.3, "norms": 1e-6})]
            write(at("m.jsonl"), records)
            page = page_with("3 of 4")
            for text in (refresh, "m: running", "0.166667", "0.75", "loss 0.3, forward 0.2<", "3.0", "<polyline"):
                check(text in page, f"the page lacks {text!r}")
            # The first of two seeds is done: the training goes on.
            records += [{"event": "done", "peak_memory_bytes": 5 * 2**20}]
            write(at("m.jsonl"), records)
            check(refresh in page_with("m: done"), "the page ends with the first seed")
            records += [records[0], *epochs(1, 2, lambda i: 0.25 / i), {"event": "done"}, {"event": "seeds"}]
            write(at("m.jsonl"), records)
            watching.wait(60)
        finally:
            watching.kill()
        said = watching.communicate()
        check(watching.returncode == 0, f"ends with {watching.returncode}: {said}")
        check("waits for the first epoch or step" in said[1], f"says {said}")
        page = page_with("All runs have ended.")
        check(refresh not in page and "MiB of memory per rank" in page and "m (2): done" in page, "the last page")
        browser = shutil.which("chromium")
        if browser is None:
            print("not seen in a browser: there is no chromium here")
        else:
            shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={at('profile')}",
                                    "file://" + at("o.html")], capture_output=True, text=True, timeout=60, check=False).stdout
            check("<polyline" in shown and "3 of 4" in shown, f"a browser shows {shown[:500]!r}")
        expect_success(ranks, ["plot", at("m.jsonl"), "-o", at("once.html")])
        with open(at("once.html"), encoding="utf-8") as file:
            check(file.read() == page, "a page that is written once differs")


def watching_ends(ranks):
    """At a signal, with a last page that no longer loads itself anew; and at what will not mend itself, with status 2."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        write(at("m.jsonl"), [{"event": "run", "configuration": [1]}, *epochs(1, 3, float)])
        watching = subprocess.Popen([sys.argv[1], "plot", at("m.jsonl"), "-o", at("o.html"), "--watch", "1"], stdout=subprocess.DEVNULL)
        for _ in range(600):
            if os.path.exists(at("o.html")):
                break
            time.sleep(0.05)
        watching.send_signal(signal.SIGINT)
        check(watching.wait(60) == 0, f"ends with {watching.returncode}")
        with open(at("o.html"), encoding="utf-8") as file:
            page = file.read()
        check("no longer written" in page and "refresh" not in page, "the last page")
        expect_success(ranks, ["plot", at("m.jsonl"), "-o", at("once.html")])
        with open(at("once.html"), encoding="utf-8") as file:
            check("Some runs have not ended." in file.read(), "a page that is written once")
        with open(at("text.jsonl"), "w", encoding="utf-8") as file:
            file.write("epoch 1\nepoch 2\n")
        for arguments, pattern in ((["plot", at("text.jsonl"), "-o", at("t.html"), "--watch", "1"], r"is not one of metrics"),
                                   (["plot", at("m.jsonl"), "-o", at("no/t.html"), "--watch", "1"], r"no/t\.html|no such|No such")):
            done = run(1, arguments)
            require(done.returncode == 2 and re.search(pattern, done.stderr) is not None, f"does not say {pattern}", done)


def draws_several_runs(ranks):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        write(at("a&<b.jsonl"), [{"event": "run"}, *epochs(1, 9, lambda i: 2 / i, val_acc=0.5, train_acc=0.25), {"event": "done"}])
        # A loss that was not finite, a second run that went on once, and a line that was cut off.
        write(at("two.jsonl"), [{"event": "run"}, *epochs(1, 4, lambda i: None if i == 2 else 3 - i / 2),
                                {"event": "run", "training": "t"}, *epochs(1, 5, lambda i: 1 / i), {"event": "stopped"},
                                {"event": "run", "training": "t", "resumed": {"epoch": 6}}, *epochs(6, 8, lambda i: 1 / i)])
        with open(at("two.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"event":"epoch","epo')
        expect_success(ranks, ["plot", at("a&<b.jsonl"), at("two.jsonl"), "-o", at("o.svg")])
        panels, legend, _ = read(at("o.svg"))
        check(legend == ["a&<b", "two (1)", "two (2)", "train", "validation"], f"legend {legend}")
        loss = {name: points for name, _, points in panels["loss, nats"]}
        expect_points(loss["r0"], [(i, 2 / i) for i in range(1, 10)], "the first run")
        expect_points(loss["r1"], [(i, 3 - i / 2) for i in (1, 3, 4)], "the second")
        expect_points(loss["r2"], [(i, 1 / i) for i in range(1, 9)], "the third")
        check([(name, dashes) for name, dashes, _ in panels["accuracy, %"]] == [("r0", "7 4")], "training's accuracy beside other runs")


def draws_many_steps(ranks):
    """100,000 of them: the lowest and the highest of each pixel stay, and the last evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        steps = [{"event": "step", "step": i, "loss": 9.0 if i == 777 else 1 + i % 2 + 1e-5 * i, "seconds": 0.01, "tokens_per_second": 5e4}
                 for i in range(1, 100_001)]
        write(at("lm.jsonl"), [{"event": "run"}, *steps, {"event": "eval", "step": 100_000, "val_loss": 1.5, "val_acc": 0.5}])
        expect_success(ranks, ["plot", at("lm.jsonl"), "-o", at("lm.svg")])
        panels, _, x_title = read(at("lm.svg"))
        check(list(panels) == ["loss, nats", "accuracy, %", "tokens per second"] and x_title == "step", f"panels {list(panels)}, {x_title}")
        loss, validation = (points for _, _, points in panels["loss, nats"]) # evaluations lie on top
        check(1000 < len(loss) < 2000, f"{len(loss)} points")
        check(abs(max(y for _, y in loss) - 9) < 0.05 and abs(loss[0][1] - 1) < 1.1, "the peak is lost")
        expect_points(validation, [(100_000, 1.5)], "the evaluation")
        check(os.path.getsize(at("lm.svg")) < 200_000, "is large")


def draws_odd_numbers(ranks):
    """Equal ones, equal but for rounding, huge and tiny ones, and lines that say nothing."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        for name, losses in (("equal", [0.5, 0.5, 0.5]), ("nearly", [1e17, 1e17 + 16, 1e17]), ("huge", [-1e299, 1e299, 0]),
                             ("beyond", [1, 1e301, 3]), ("tiny", [1e-9, 2e-9, 4e-9]), ("zero", [0, 0, 0])):
            records = [{"event": "run"}, {"event": 5}, *epochs(1, 3, lambda i: losses[i - 1])]
            write(at("m.jsonl"), records)
            with open(at("m.jsonl"), "a", encoding="utf-8") as file:
                file.write("\r\n\n")
            expect_success(ranks, ["plot", at("m.jsonl"), "-o", at(f"{name}.svg")])
            texts = [element.text for element in ElementTree.parse(at(f"{name}.svg")).getroot().iter(f"{SVG}text")]
            check(not any("nan" in text or "inf" in text for text in texts) and len(texts) < 40, f"{name} has the numbers {texts}")
            points = ElementTree.parse(at(f"{name}.svg")).getroot().find(f"{SVG}polyline").get("points").split()
            places = [float(point.split(",")[1]) for point in points]
            check(len(places) == (2 if name == "beyond" else 3) and all(0 < y < 400 for y in places), f"{name} lies at {places}")
            if name in ("equal", "zero"):
                check(len(set(places)) == 1, f"{name} is no level line")
            if name == "tiny":
                check(abs((places[0] - places[2]) / (places[0] - places[1]) - 3) < 0.01, f"{name} has the wrong places {places}")


def mistakes(ranks):
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        write(at("epochs.jsonl"), [{"event": "run"}, *epochs(1, 3, float)])
        write(at("steps.jsonl"), [{"event": "run"}, {"event": "step", "step": 1, "loss": 1.0}])
        write(at("none.jsonl"), [{"event": "run"}, {"event": "done"}])
        for name, text in (("text.jsonl", "epoch 1 loss 2\nepoch 2\n"), ("list.jsonl", "[1]\n"), ("empty.jsonl", ""), ("there.svg", "x")):
            with open(at(name), "w", encoding="utf-8") as file:
                file.write(text)
        out = ["-o", at("o.svg")]
        for arguments, pattern in (
                (["plot", *out], r"name the metrics of a training"),
                (["plot", at("epochs.jsonl")], r"name the file to write with -o FILE\.svg"),
                (["plot", at("epochs.jsonl"), "-o", at("o.png")], r"plot writes \.svg and \.html files"),
                (["plot", at("epochs.jsonl"), *out, "--watch", "1"], r"--watch writes a page: name an \.html file"),
                (["plot", at("epochs.jsonl"), "-o", at("there.svg")], r"there\.svg' .*--force|--force.*there\.svg"),
                (["plot", at("gone.jsonl"), *out], r"cannot read the metrics '.*gone\.jsonl': No such file"),
                (["plot", at("text.jsonl"), *out], r"line 1 of '.*text\.jsonl' is not one of metrics"),
                (["plot", at("list.jsonl"), *out], r"line 1 of '.*list\.jsonl' is not one of metrics"),
                (["plot", at("empty.jsonl"), *out], r"has no epoch and no step"),
                (["plot", at("none.jsonl"), *out], r"has no epoch and no step"),
                (["plot", at("epochs.jsonl"), at("steps.jsonl"), *out], r"epochs has epochs and steps steps"),
                (["plot", at("epochs.jsonl"), "--over", "hours", *out], r"'hours' is none of steps, seconds")):
            expect_mistake(ranks, arguments, pattern)
            check(not os.path.exists(at("o.svg")), f"{arguments} wrote a file")
        os.rename(at("epochs.jsonl"), at("epochs.svg"))
        expect_mistake(ranks, ["plot", at("epochs.svg"), "-o", at("epochs.svg"), "--force"], r"epochs\.svg")


if __name__ == "__main__":
    sys.exit(attempt_all([(1, (draws_a_training,)), (2, (draws_a_training,)), (1, (watches_a_training,)), (1, (watching_ends,)), (1, (draws_several_runs,)), (1, (draws_many_steps,)), (1, (draws_odd_numbers,)),
                          (1, (mistakes,)), (2, (mistakes,))]))
