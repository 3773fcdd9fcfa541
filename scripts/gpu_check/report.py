# SPDX-License-Identifier: Apache-2.0
"""What came out: table.txt for people, results.jsonl for programs. Both are whole after every step."""
import dataclasses
import json

LOG_LINES = 60  # of a step that failed, in failures.txt: from the first failure on, and the end


@dataclasses.dataclass
class Outcome:
    result: str  # passed, failed, skipped, cut (no time left) or done (a measurement)
    reason: str = ""  # of what did not pass
    lines: list = dataclasses.field(default_factory=list)  # for the table
    log: str = ""  # shown where it failed


class Report:
    def __init__(self, out, head):
        self._out = out
        self._lines = [*head, ""]
        self.has_failed = False
        for name in ("results.jsonl", "failures.txt"):
            (out / name).write_text("")
        self._write()

    def add(self, step, outcome, seconds):
        self.has_failed = self.has_failed or outcome.result == "failed"
        word = outcome.result.upper() if outcome.result == "failed" else outcome.result
        text = f"{step:<14} {word:<8} {seconds:7.1f} s"
        self._lines += [text + (f"  {outcome.reason}" if outcome.reason else ""), *("    " + line for line in outcome.lines)]
        self._write()
        self.record({"step": step, "result": outcome.result, "seconds": round(seconds, 2), "reason": outcome.reason})
        if outcome.result in ("failed", "cut") and outcome.log:
            self.show_failure(step, outcome.log)
        print(text, flush=True)

    def record(self, fact):
        with open(self._out / "results.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")

    def show_failure(self, name, log):
        lines = log.rstrip().split("\n")
        first = next((i for i, line in enumerate(lines) if line.endswith(": Failure")), len(lines))  # as GoogleTest tells it
        half = LOG_LINES // 2
        if len(lines) - first > LOG_LINES:
            lines = [*lines[first:first + half], "..", *lines[-half:]]
        else:
            lines = lines[-LOG_LINES:]
        with open(self._out / "failures.txt", "a", encoding="utf-8") as file:
            file.write(f"=== {name}\n" + "\n".join(lines) + "\n")

    def finish(self, left_over):
        """Names what was never begun, and returns the table."""
        if left_over:
            self._lines.append("no time was left for: " + ", ".join(left_over))
        self._write()
        return "\n".join(self._lines) + "\n"

    def _write(self):
        (self._out / "table.txt").write_text("\n".join(self._lines) + "\n", encoding="utf-8")
