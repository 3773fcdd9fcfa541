# SPDX-License-Identifier: Apache-2.0
"""Each check finds the mistake that it is there for, and passes a file without."""

import json
import pathlib
import tempfile
import unittest

import check_folders
import check_includes
import check_kernels
import check_lengths
import check_names
import check_sources
import check_text


def problems_of(check, **contents):
    """The problems in a tree of files; '__' in a name stands for '/', and its last '_' for '.'."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in contents.items():
            stem, suffix = name.replace("__", "/").rsplit("_", 1)
            path = pathlib.Path(root) / f"{stem}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        problems, num_checked = check(root)
        assert num_checked == len(contents)
        return problems


class Names(unittest.TestCase):
    ONE = "namespace orthant::pmm {\nstruct Cell {\n};\n} // namespace orthant::pmm\n"

    def test_a_type_of_two_headers_is_found(self):
        found = problems_of(check_names.check, src__pmm__a_hpp=self.ONE, src__pmm__b_hpp=self.ONE.replace("struct", "class"))
        self.assertEqual(1, len(found), found)
        self.assertIn("src/pmm/b.hpp:2: orthant::pmm::Cell is defined in src/pmm/a.hpp, too", found[0])

    def test_other_namespaces_and_declarations_pass(self):
        self.assertEqual([], problems_of(check_names.check, src__pmm__a_hpp=self.ONE, src__graph__b_hpp=self.ONE.replace("pmm", "graph"),
                                         src__pmm__c_hpp=self.ONE.replace(" {\n};", ";"),
                                         src__pmm__d_hpp=self.ONE.replace("struct", "namespace detail {\nstruct").replace("};", "};\n} // namespace detail")))


class Sources(unittest.TestCase):
    def faults_of(self, second):
        """Of a group of two sources, the first of which includes <vector>."""
        with tempfile.TemporaryDirectory() as root:
            root = pathlib.Path(root)
            (root / "Unity").mkdir()
            (root / "first.cpp").write_text("#include <vector>\nstd::vector<int> first;\n")
            (root / "second.cpp").write_text(second)
            group = root / "Unity" / "unity_0_cxx.cxx"
            group.write_text("".join(f'#include "{root / name}"\n' for name in ("first.cpp", "second.cpp")))
            entry = {"directory": str(root), "file": str(group), "command": f"c++ -std=c++20 -o unity.o -c {group}"}
            (root / "compile_commands.json").write_text(json.dumps([entry]))
            return [fault for fault in map(check_sources.fault_of, check_sources.commands_alone(root)) if fault]

    def test_a_source_that_needs_what_another_includes_is_found(self):
        faults = self.faults_of("std::vector<int> second;\n")
        self.assertEqual(1, len(faults), faults)
        self.assertIn("second.cpp does not compile alone", faults[0])

    def test_sources_with_includes_of_their_own_pass(self):
        self.assertEqual([], self.faults_of("#include <vector>\nstd::vector<int> second;\n"))


class Includes(unittest.TestCase):
    def test_allowed_directions_pass(self):
        self.assertEqual([], problems_of(check_includes.check, src__pmm__a_hpp='#include "runtime/views.hpp"\n',
                                         src__models__a_cpp='#include "pmm/a.hpp"\n#include <vector>\n'))

    def test_graph_and_pmm_never_see_each_other(self):
        for one, other in (("pmm", "graph"), ("graph", "pmm"), ("runtime", "pmm"), ("sampling", "pmm")):
            found = problems_of(check_includes.check, **{f"src__{one}__a_hpp": f'#include "{other}/b.hpp"\n'})
            self.assertEqual(1, len(found), found)
            self.assertIn(f"src/{one} may not include src/{other}", found[0])

    def test_bare_and_relative_names_are_refused(self):
        self.assertEqual(1, len(problems_of(check_includes.check, src__pmm__a_hpp='#include "b.hpp"\n')))
        self.assertEqual(1, len(problems_of(check_includes.check, src__pmm__a_hpp='#include "../graph/b.hpp"\n')))

    def test_a_sub_folder_knows_those_before_it(self):
        low, high = '#include "pmm/grid/a.hpp"\n', '#include "pmm/product/a.hpp"\n'
        for suffix in ("hpp", "cpp", "inc"):
            self.assertEqual([], problems_of(check_includes.check, **{f"src__pmm__product__b_{suffix}": low + high}))
            self.assertEqual([], problems_of(check_includes.check, **{f"src__models__gnn__plan__b_{suffix}": high}))
            found = problems_of(check_includes.check, **{f"src__pmm__grid__b_{suffix}": low + high})
            self.assertEqual(1, len(found), found)
            self.assertIn("grid stands below product", found[0])

    def test_the_folder_itself_stands_lowest_or_where_it_is_named(self):
        self.assertEqual([], problems_of(check_includes.check, src__cli__a_cpp='#include "cli/bench/a.hpp"\n'))
        for folder, sub in (("runtime", "comm"), ("pmm", "grid")):
            found = problems_of(check_includes.check,
                                **{f"src__{folder}__a_hpp": f'#include "{folder}/{sub}/a.hpp"\n'})
            self.assertEqual(1, len(found), found)

    def test_unknown_sub_folders_are_refused(self):
        self.assertEqual(1, len(problems_of(check_includes.check, src__pmm__new__a_hpp="")))
        self.assertEqual(1, len(problems_of(check_includes.check, src__pmm__grid__a_hpp='#include "pmm/new/b.hpp"\n')))
        self.assertEqual(1, len(problems_of(check_includes.check, src__sampling__new__a_hpp="")))

    def test_own_header_comes_first(self):
        found = problems_of(check_includes.check, src__pmm__a_hpp="",
                            src__pmm__a_cpp='#include <vector>\n#include "pmm/a.hpp"\n')
        self.assertEqual(1, len(found), found)

    def test_graph_is_host_code(self):
        self.assertEqual(1, len(problems_of(check_includes.check, src__graph__a_hpp="#include <Kokkos_Core.hpp>\n")))


class Folders(unittest.TestCase):
    def test_full_folders_are_found(self):
        files = {f"src__pmm__a{i}_hpp": "" for i in range(check_folders.MOST_FILES)}
        self.assertEqual([], problems_of(check_folders.check, **files, src__pmm__grid__a_hpp=""))
        self.assertEqual(1, len(problems_of(check_folders.check, **files, src__pmm__README_md="")))


class Lengths(unittest.TestCase):
    LONG = "line\n" * check_lengths.MOST_LINES
    TOO_LONG = LONG + "line"

    def test_long_files_are_found_whatever_they_are(self):
        for name in ("src__pmm__a_cpp", "src__pmm__a_inc", "tests__pmm__a_hpp", "tests__cli__a_py", "tests__cli__CMakeLists_txt",
                     "scripts__a_sh", "cmake__a_cmake", "docs__a_md"):
            self.assertEqual([], problems_of(check_lengths.check, **{name: self.LONG}))
            found = problems_of(check_lengths.check, **{name: self.TOO_LONG})
            self.assertEqual(1, len(found), found)
            self.assertIn("401: more than 400 lines", found[0])

    def test_data_are_exempt(self):
        self.assertEqual([], problems_of(check_lengths.check, datasets__karate__edge_csv=self.TOO_LONG,
                                         tests__models__figures_json=self.TOO_LONG, tests__graph__a_mtx=self.TOO_LONG))


class Kernels(unittest.TestCase):
    def num_problems(self, text):
        return len(problems_of(check_kernels.check, src__pmm__a_cpp=text))

    def test_labelled_kernels_pass(self):
        self.assertEqual(0, self.num_problems('Kokkos::parallel_for(\n  "orthant::pmm::add", policy, f);'))
        self.assertEqual(0, self.num_problems("Kokkos::parallel_for(label, policy, f);"))
        self.assertEqual(0, self.num_problems("Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), f);"))
        self.assertEqual(0, self.num_problems("// parallel_for(policy)\n"))

    def test_other_kernels_do_not(self):
        self.assertEqual(1, self.num_problems("Kokkos::parallel_for(policy, f);"))
        self.assertEqual(1, self.num_problems('Kokkos::parallel_reduce("add", policy, f, sum);'))
        self.assertEqual(1, self.num_problems('Kokkos::parallel_scan("orthant::graph::scan", policy, f);'))

    def test_allocations(self):
        self.assertEqual(0, self.num_problems('V v(Kokkos::view_alloc(exec, "orthant::pmm::v"), n);'))
        self.assertEqual(1, self.num_problems('V v(Kokkos::view_alloc(exec, "v"), n);'))
        self.assertEqual(1, self.num_problems("V v(Kokkos::view_alloc(exec, WithoutInitializing), n);"))
        self.assertEqual(1, self.num_problems('Kokkos::View<float*> v("v", n);'))
        self.assertEqual(0, self.num_problems('runtime::Vector<T, Exec>("orthant::pmm::v", n)'))


class Text(unittest.TestCase):
    LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"

    def test_a_plain_header_passes(self):
        self.assertEqual([], problems_of(check_text.check, src__pmm__a_hpp="#pragma once\n" + self.LICENCE))

    def test_each_mistake_is_found(self):
        for text in ("#pragma once\n", self.LICENCE, "#pragma once\n" + self.LICENCE + "using namespace std;\n",
                     "#pragma once\n" + self.LICENCE + "// see /ho" + "me/me/notes\n",
                     "#pragma once\n" + self.LICENCE + "// TO" + "DO\n"):
            self.assertEqual(1, len(problems_of(check_text.check, src__pmm__a_hpp=text)), text)
        self.assertEqual(1, len(problems_of(check_text.check, src__pmm__utils_cpp=self.LICENCE)))

    def test_vertices_are_named_above_pmm_and_runtime(self):
        for words in ("train_loss", "val_acc", "test_mask", "num_splits", "no_split", "the accuracy", "a stratum", "in order p1"):
            text = self.LICENCE + f"// {words}\n"
            for folder in ("pmm", "runtime"):
                found = problems_of(check_text.check, **{f"src__{folder}__a_cpp": text})
                self.assertEqual(1, len(found), (words, found))
            self.assertEqual([], problems_of(check_text.check, src__models__a_cpp=text))
        self.assertEqual([], problems_of(check_text.check, src__pmm__a_cpp=self.LICENCE + "// split, latest_loss, substrate, p1\n"))


if __name__ == "__main__":
    unittest.main()
