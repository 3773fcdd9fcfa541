# SPDX-License-Identifier: Apache-2.0
"""Each rule of scripts/check_docs.py finds the mistake that it is there for, and passes a page without it."""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
sys.dont_write_bytecode = True
import importlib.util  # noqa: E402

from check_docs import claims, links, options, run  # noqa: E402
from check_docs.page import Page  # noqa: E402

PROGRAM = """#!/bin/sh
case "$*" in
  --help) printf 'Usage\\n\\nCommands:\\n  train               Train\\n  evaluate            Score\\n  bench epoch         Time\\n\\nOptions:\\n  -h,--help\\n' ;;
  "train --help") printf 'Usage: orthant train [OPTIONS]\\n\\nOptions:\\n  --graph TEXT  A store, see --old\\n  --bias,--no-bias{false}  Biases\\n' ;;
  "evaluate --help") printf 'Options:\\n  --weights TEXT\\n' ;;
  "bench epoch --help") printf 'Options:\\n  --epochs INT\\n' ;;
  "train "*) echo "trained with $*" ;;
  *) echo "orthant: error: no"; exit 2 ;;
esac
"""
RESULTS = "| A | 45.26 ms |\n| B | 56.43 | 1,024 ranks, 3e-15, ran 2026-11-27, 0.838 |\n"


def loaded(name, *path):
    """A script of the repository as a module."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", *path)
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tree(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.write("tests/bench/results/speed.md", RESULTS)
        self.write("tests/bench/results/other.md", "77.7\n")
        self.program = self.write("bin/orthant", PROGRAM)
        self.program.chmod(0o755)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def page(self, text, name="docs/page.md"):
        return Page(self.root, self.write(name, text))

    def assert_errors(self, found, *patterns):
        """One error for each pattern, in order; those that begin with a number begin with that line."""
        texts = [f"{error.line}: {error.text}" for error in found]
        self.assertEqual(len(patterns), len(texts), texts)
        for pattern, text in zip(patterns, texts):
            self.assertTrue(re.match(pattern, text, re.S), f"{text!r} does not match {pattern!r}")


class Links(Tree):
    def errors(self, text):
        return links.check(self.page(text))[0]

    def test_files_and_anchors_that_exist_pass(self):
        self.write("docs/other.md", "# Big title: `code`, and (more)\n\n## Twice\n\n## Twice\n")
        self.assertEqual([], self.errors(
            "# Here\n[a](other.md) [b](other.md#big-title-code-and-more) [c](#here) [d](other.md#twice-1)\n"
            "![e](../bin/orthant) [f](https://example.org/no) `[g](no.md)`\n\n```text\n[h](no.md)\n```\n[i]: other.md\n"))

    def test_missing_files_are_found(self):
        self.assert_errors(self.errors("a\n[b](no.md)\n![c](no.png)\n<img src=\"no.svg\">\n[`d`](no)\n"), "2: .*no.md", "3: .*no.png",
                           "5: .*no ", "4: .*no.svg")

    def test_missing_anchors_are_found(self):
        self.write("docs/other.md", "# Title\n\n```text\n# Code\n```\n")
        self.assert_errors(self.errors("# Here\n[a](#there)\n[b](other.md#code)\n"), "2: .*#there", "3: .*#code")

    def test_links_out_of_the_repository_are_found(self):
        self.assert_errors(self.errors("[a](../../x.md)\n"), "1: .*leaves the repository")


class Options(Tree):
    def setUp(self):
        super().setUp()
        self.help = options.Help(str(self.program))

    def errors(self, text, scripts=frozenset()):
        return options.check(self.page(text), self.help, scripts)[0]

    def test_help_is_read_for_each_command(self):
        self.assertEqual({"train": {"--graph", "--bias", "--no-bias"}, "evaluate": {"--weights"}, "bench epoch": {"--epochs"}},
                         self.help.options)

    def test_options_of_the_help_pass(self):
        self.assertEqual([], self.errors(
            "`orthant train --graph g --no-bias`, `--weights`, `bench epoch --epochs 3`, `evaluate --graph`, `--kokkos-threads 2`, `cmake --fresh`, `orthant weights`\n"
            "```sh\nFAST=1 mpirun -n 4 orthant train --graph g \\\n  --bias | tee --append log # --never\ncmake --fresh\n```\n"))

    def test_options_of_no_or_another_command_are_found(self):
        self.assert_errors(self.errors("`--nothing`\n`orthant train --weights w`\n\n```sh\necho\nmpirun orthant train \\\n --old\northant tain --graph g\n```\n"),
                           "6: .*train --help' has no --old", "8: .*no command 'tain'", "1: .*--nothing", "2: .*train --help' has no --weights")

    def test_other_programs_options_are_declared(self):
        self.assertEqual([], self.errors("<!-- options of other programs: --batch-size -->\n`--batch-size`, `--all`\n", {"--all"}))

    def test_the_listing_has_all_options(self):
        errors, _ = options.check_listing(self.page("`--graph --bias --no-bias --weights`"), self.help)
        self.assert_errors(errors, "1: .*lacks --epochs of 'orthant bench epoch")


class Claims(Tree):
    LINK = "[figures](../tests/bench/results/speed.md)"

    def errors(self, text):
        return claims.check(self.page(text))[0]

    def test_figures_of_the_file_pass(self):
        self.assertEqual([], self.errors(
            f"It takes 45.26 ms, 45.3ms, 56.43, 1024 or 1,024 ranks, 3e-15, 4 times, on H100 and a 1x2x2x16 grid, `99`, 2020-01-01, {self.LINK}\n"))

    def test_other_figures_are_found(self):
        self.assert_errors(self.errors(f"It takes 45.4 ms\nor 57 or 11x or 2,048. {self.LINK}\n\n99 is free\n"), "1: 45.4 is not in speed.md",
                           "2: 57 ", "2: 11 ", "2: 2,048 ")

    def test_tables_take_the_links_of_their_neighbors(self):
        table = "| a | 45.26 |\n|---|---|\n| b | 46.26 |\n"
        for text in (f"See {self.LINK}:\n\n{table}", f"{table}\n{self.LINK}\n", table.replace("| b", f"| {self.LINK}")):
            self.assertEqual(["46.26 is not in speed.md"], [error.text for error in self.errors(text)], text)
        self.assertEqual([], self.errors(f"{table}\nA paragraph.\n\n{self.LINK}\n"))

    def test_with_several_links_one_must_have_it(self):
        two = f"{self.LINK} [b](../tests/bench/results/other.md)"
        self.assertEqual([], self.errors(f"45.26 and 77.7 {two}\n"))
        self.assert_errors(self.errors(f"88.8 {two}\n"), "1: 88.8 is not in speed.md and other.md")

    def test_derived_figures_are_computed(self):
        self.assertEqual([], self.errors(f"1.25<!-- derived: 56.43 / 45.26 --> times, 83.8 %<!-- derived: 100 * 0.838 --> {self.LINK}\n"))
        self.assert_errors(self.errors(f"1.26 times <!-- derived: 56.43 / 45.26 --> {self.LINK}\n"), "1: 1.26 is not 56.43 / 45.26 = 1.2468$")
        self.assert_errors(self.errors(f"1.25 <!-- derived: 56.43 / 45.1 --> {self.LINK}\n"), "1: .*45.1 is not in speed.md")
        self.assert_errors(self.errors(f"1.25 <!-- derived: max(1, 2) --> {self.LINK}\n"), "1: .*not made of numbers")

    def test_given_figures_have_a_reason(self):
        self.assertEqual([], self.errors(f"2,048 GPUs <!-- given: their paper --> {self.LINK}\n"))
        self.assert_errors(self.errors(f"2,048 GPUs <!-- given: --> {self.LINK}\n"), "1: .*no reason")


class Run(Tree):
    def check(self, text, limit=30, modules=()):
        return run.check(self.page(text), str(self.program), limit, lambda python, module, program: module in modules)

    def test_blocks_share_a_folder_and_a_shell(self):
        errors, count, others = self.check(
            "```sh\nname=a\northant train --graph g > $name\n```\n\n- item\n\n  ```sh\n  test -s \"$name\"\n  test -f \"$ORTHANT_ROOT/bin/orthant\"\n  ```\n")
        self.assertEqual(([], 2, []), (errors, count, others))

    def test_the_root_is_a_variable_of_the_page_alone(self):
        self.assertEqual([], self.check("```sh\ntest -n \"$ORTHANT_ROOT\"\n! env | grep ^ORTHANT_\n```\n")[0])
        text = "```python run\nimport os\nassert os.path.isdir(os.environ['ORTHANT_ROOT'])\n```\n"
        self.assertEqual(([], 1, []), self.check(text, modules=("numpy",)))

    def test_a_failing_command_is_found(self):
        errors, _, _ = self.check("text\n\n```sh\ntrue\n```\n\n```sh\necho one\northant evaluate --weights w\necho never\n```\n")
        self.assert_errors(errors, "9: status 2: orthant evaluate --weights w\n    one\n    orthant: error: no$")

    def test_a_block_that_bash_cannot_read_is_found(self):
        self.assert_errors(self.check("```sh\ntrue\nif )\n```\n")[0], "3: status 2: syntax error")

    def test_the_time_limit_ends_a_page(self):
        self.assert_errors(self.check("```sh\ntrue\nsleep 60\n```\n", limit=1)[0], "3: after 1 s of the page this still runs: sleep 60")

    def test_marked_blocks_do_not_run(self):
        errors, count, others = self.check("<!-- not run: needs a cluster -->\n```sh\nfalse\n```\n```text\nfalse\n```\n")
        self.assertEqual(([], 0, [(2, "needs a cluster")]), (errors, count, [(block.line, reason) for block, reason in others]))

    def test_marks_without_block_or_reason_are_found(self):
        self.assert_errors(self.check("<!-- not run: late -->\n\n```sh\ntrue\n```\n")[0], "1: .*not stand directly above")
        self.assert_errors(self.check("<!-- not run: -->\n```sh\ntrue\n```\n")[0], "1: .*no reason")

    def test_shell_without_its_language_is_found(self):
        self.assert_errors(self.check("```\nmpirun -n 4 orthant train --graph g\n```\n\n```\nH = A F\n```\n")[0], "1: .*begins with ```sh")

    def test_python_runs_if_numpy_is_there(self):
        text = "```sh\necho 3 > n\n```\n```python\nthis is not run\n```\n```python run\nimport sys\nsys.exit(int(open('n').read()))\n```\n"
        self.assert_errors(self.check(text, modules=("numpy",))[0], "7: status 3")
        self.assertEqual("numpy cannot be imported", self.check(text)[2][0][1])

    def test_blocks_run_if_what_they_need_is_there(self):
        text = "<!-- needs: one, two.three -->\n```sh\nfalse\n```\n<!-- needs: one -->\n```python run\nimport sys\nsys.exit(3)\n```\n"
        errors, count, others = self.check(text, modules=("one",))
        self.assertEqual(([], 0, [(2, "two.three cannot be imported"), (6, "numpy cannot be imported")]),
                         (errors, count, [(block.line, reason) for block, reason in others]))
        self.assert_errors(self.check(text, modules=("one", "numpy"))[0], "6: status 3")
        self.assert_errors(self.check(text, modules=("one", "two.three"))[0], "3: status 1: false")

    def test_what_is_needed_is_imported_in_the_environment_of_the_page(self):
        self.write("modules/there.py", "")
        self.write("modules/broken.py", "import nothing_of_this_name")
        text = "".join(f"<!-- needs: {name} -->\n```sh\npython3 -c 'import {name}'\n```\n" for name in ("json", "there", "broken", "absent"))
        with unittest.mock.patch.dict(os.environ, {"PYTHONPATH": str(self.root / "modules")}):
            errors, count, others = run.check(self.page(text), str(self.program), 30)
        self.assertEqual(([], 2, ["broken cannot be imported", "absent cannot be imported"]), (errors, count, [reason for _, reason in others]))

    def test_needs_without_block_or_module_are_found(self):
        self.assert_errors(self.check("<!-- needs: numpy -->\n\n```sh\ntrue\n```\n")[0], "1: .*not stand directly above")
        self.assert_errors(self.check("<!-- needs: -->\n```sh\ntrue\n```\n")[0], "1: .*does not name modules")
        self.assert_errors(self.check("<!-- needs: a b-c -->\n```sh\ntrue\n```\n")[0], "1: .*does not name modules")


class Program(Tree):
    def run_main(self, *arguments):
        program = loaded("check_docs_program", "scripts", "check_docs.py")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = program.main(["--root", str(self.root), *arguments])
        return status, output.getvalue()

    def test_all_rules_together(self):
        self.write("README.md", "[a](no.md) `--nothing`\n\n45.4 [f](tests/bench/results/speed.md)\n\n```sh\nfalse\n```\n")
        self.write("docs/command_line.md", "`--graph --bias --no-bias --weights --epochs`\n")
        status, output = self.run_main("--orthant", str(self.program))
        self.assertEqual(1, status)
        for expected in ("README.md:1: the link no.md", "README.md:1: no command of orthant has an option --nothing", "README.md:3: 45.4 is not",
                         "README.md:6: status 1: false", "2 pages: 1 blocks run, 0 not run, 2 links"):
            self.assertIn(expected, output)
        self.assertTrue(output.rstrip().endswith("; 4 errors"), output)

    def test_one_rule_alone_and_the_list(self):
        page = str(self.write("README.md", "[a](no.md)\n<!-- not run: slow -->\n```sh\nfalse\n```\n```sh\ntrue\n```\n"))
        self.assertEqual(0, self.run_main("--only", "claims", page)[0])
        self.assertEqual(1, self.run_main("--only", "links", page)[0])
        status, output = self.run_main("--list", page)
        self.assertEqual((0, "README.md:3: sh: not run: slow\nREADME.md:6: sh: runs\n"), (status, output))

    def test_a_page_without_what_it_needs_is_skipped(self):
        needs, slow, good, bad = ("<!-- needs: absent -->\n```sh\nfalse\n```\n", "<!-- not run: slow -->\n```sh\nfalse\n```\n",
                                  "```sh\ntrue\n```\n", "[a](no.md)\n")
        one = ("--orthant", str(self.program), "--only", "run")
        for text, status in ((needs, 77), (needs + slow, 77), (slow, 0), (needs + good, 0), (bad + needs, 77)):
            page = str(self.write("README.md", text))
            self.assertEqual(status, self.run_main(*one, page)[0], text)
            self.assertEqual(0, self.run_main(*one)[0], text)
            self.assertEqual(0, self.run_main(*one, page, page)[0], text)
        self.assertEqual(1, self.run_main(*one, "--only", "links", page)[0])


class Sources(unittest.TestCase):
    def test_annotations_are_not_evaluated(self):
        """`str | None` in a dataclass needs Python 3.10 otherwise."""
        for path in pathlib.Path(run.__file__).parent.glob("*.py"):
            self.assertIn("\nfrom __future__ import annotations\n", path.read_text(encoding="utf-8"), path.name)


class Examples(Tree):
    def setUp(self):
        super().setUp()
        self.checker = loaded("examples_check", "examples", "check.py")

    def launch(self, **variables):
        with unittest.mock.patch.dict(os.environ, variables):
            for name in {"LAUNCH", "ORTHANT_MPIRUN"} - set(variables):
                os.environ.pop(name, None)
            return self.checker.environment_of(self.root).get("LAUNCH")

    def test_the_launcher_is_the_one_of_ctest_unless_it_is_given(self):
        self.assertIsNone(self.launch())
        self.assertEqual("mpirun -n", self.launch(ORTHANT_MPIRUN="mpirun -n"))
        self.assertEqual("srun -n", self.launch(ORTHANT_MPIRUN="mpirun -n", LAUNCH="srun -n"))
        self.assertEqual("mpirun -n", self.launch(ORTHANT_MPIRUN="mpirun -n", LAUNCH=""))

    def test_what_is_expected_must_not_be_empty(self):
        self.write("example/expected.txt", "\n")
        for printed in ("", "epoch 1\n"):
            result = subprocess.CompletedProcess([], 0, printed, "")
            self.assertEqual("expected.txt is empty", self.checker.fault(self.root / "example", result, 0.05))


if __name__ == "__main__":
    unittest.main()
