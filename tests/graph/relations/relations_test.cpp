// SPDX-License-Identifier: Apache-2.0
//
// Stores of graphs with relations, against the triples that they were made from, read by a plain loop.
#include "graph/read/open_graph.hpp"
#include "graph/store/store_fixture.hpp"

#include "graph/store/listed_block.hpp"
#include "graph/store/store_file.hpp"
#include "graph/store/tiled_matrix.hpp"
#include "support/user_messages.hpp"

#include <array>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using Triple = std::array<std::int64_t, 3>; // source, relation, target

/// Triples of names in order of lines, and the numbers that the names get.
struct Expected {
  std::vector<std::string> vertices;
  std::vector<std::string> relations;
  std::set<Triple> triples;
  std::int64_t num_lines = 0;

  static std::int64_t number(std::vector<std::string>& names, std::string const& name) {
    auto const found = std::find(names.begin(), names.end(), name);
    auto const place = found - names.begin();
    if (found == names.end()) names.push_back(name);
    return place;
  }
  void add(std::string const& head, std::string const& relation, std::string const& tail) {
    auto const source = number(vertices, head);
    auto const r = number(relations, relation);
    triples.insert({source, r, number(vertices, tail)});
    ++num_lines;
  }
};

/// `num_lines` lines over few vertices, so that many pairs have several relations, some lines repeat, and some ends are equal.
std::string some_triples(std::int64_t num_lines, Expected& expected) {
  std::string text;
  std::uint64_t state = 7;
  auto const draw = [&](std::uint64_t bound) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % bound;
  };
  for (std::int64_t i = 0; i < num_lines; ++i) {
    auto const head = fmt::format("v{}", draw(37) * draw(37) % 37);
    auto const relation = fmt::format("r{}", draw(5));
    auto const tail = i % 10 == 0 ? head : fmt::format("v{}", draw(37));
    text += head + '\t' + relation + '\t' + tail + '\n';
    expected.add(head, relation, tail);
  }
  return text;
}

class Relations : public StoreTest {
 protected:
  GraphStore partitioned(std::string const& text, PartitionOptions options, bool adds_inverse = false) {
    auto const input = Input{
        .path = scratch.write("t.tsv", text), .format = InputFormat::triples, .adds_inverse = adds_inverse};
    options.replaces_output = true;
    partition(comm, *open_graph(comm, input), scratch.path() / "t.h5", options);
    options.uses_wide_ids = true;
    if (comm.is_root()) partition(self, *open_graph(self, input), scratch.path() / "alone.h5", options);
    runtime::barrier(runtime::host, comm);
    expect_equal_files(scratch.path() / "t.h5", scratch.path() / "alone.h5");
    auto store = GraphStore::open(comm, scratch.path() / "t.h5");
    store.verify(comm);
    return store;
  }
};

/// Adds the triples of a block to `found`, and checks the order of its entries.
void collect(CsrBlock const& block, std::vector<std::int64_t> const& row_ids,
             std::vector<std::int64_t> const& column_ids, std::set<Triple>& found) {
  ASSERT_EQ(block.relations.size(), block.columns.size());
  for (std::int64_t r = 0; r < block.rows.size(); ++r)
    for (auto k = block.row_offsets[index(r)]; k < block.row_offsets[index(r) + 1]; ++k) {
      auto const at = [&](std::int64_t i) {
        return std::pair(block.columns[index(i)], block.relations[index(i)]);
      };
      if (k > block.row_offsets[index(r)]) {
        ASSERT_LT(at(k - 1), at(k));
      }
      auto const column = block.columns_range.begin + block.columns[index(k)];
      found.insert(
          {column_ids[index(column)], block.relations[index(k)], row_ids[index(block.rows.begin + r)]});
    }
}

/// The blocks of some grids hold the triples, each once.
void expect_triples(GraphStore const& store, std::set<Triple> const& expected) {
  auto const n = store.facts().num_vertices;
  for (auto const parity : {Parity::even, Parity::odd}) {
    auto const row_ids = ids_of(store, row_order(parity));
    auto const column_ids = ids_of(store, column_order(parity));
    for (auto const& [p, q] : {std::pair(1, 1), std::pair(2, 3), std::pair(3, 1), std::pair(1, 4)}) {
      std::set<Triple> found;
      std::set<Triple> by_columns;
      std::int64_t num_found = 0;
      std::int64_t num_loops = 0;
      for (int i = 0; i < p; ++i)
        for (int j = 0; j < q; ++j) {
          auto const rows = runtime::balanced_range(n, p, i);
          auto const columns = runtime::balanced_range(n, q, j);
          auto const block = store.read_block(parity, rows, columns, SelfLoops::as_given);
          num_found += block.num_nonzeros();
          collect(block, row_ids, column_ids, found);
          auto const reversed = transposed(block);
          std::set<Triple> turned;
          collect(reversed, column_ids, row_ids, turned);
          for (auto const& [source, relation, target] : turned)
            by_columns.insert({target, relation, source});
          EXPECT_TRUE(store.read_block(parity, rows, columns, SelfLoops::added).relations.empty());
          auto const without = store.read_block(parity, rows, columns, SelfLoops::dropped);
          EXPECT_EQ(without.relations.size(), without.columns.size());
          num_loops += block.num_nonzeros() - without.num_nonzeros();
        }
      ASSERT_EQ(num_found, std::ssize(expected)) << p << 'x' << q;
      ASSERT_TRUE(found == expected) << p << 'x' << q << (parity == Parity::even ? " even" : " odd");
      ASSERT_TRUE(by_columns == expected) << p << 'x' << q;
      ASSERT_EQ(num_loops, store.facts().num_self_loops);
    }
  }
}

/// A block of listed ranges holds the triples of its rows and columns.
void expect_listed_triples(GraphStore const& store, std::set<Triple> const& expected) {
  auto const n = store.facts().num_vertices;
  Ranges const rows{{n / 2, n}, {0, n / 4}};
  Ranges const columns{{n / 3, n / 2}, {n - 5, n}, {0, n / 5}};
  auto const ids = ids_of(store, Order::p1);
  auto const ids_in = [&](Ranges const& ranges) {
    std::vector<std::int64_t> listed;
    for (auto const& range : ranges)
      listed.insert(listed.end(), ids.begin() + range.begin, ids.begin() + range.end);
    return listed;
  };
  auto const row_ids = ids_in(rows);
  auto const column_ids = ids_in(columns);
  auto const contains = [](std::vector<std::int64_t> const& list, std::int64_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  std::set<Triple> inside;
  for (auto const& triple : expected)
    if (contains(column_ids, triple[0]) && contains(row_ids, triple[2])) inside.insert(triple);

  auto const block = read_listed_block(store, rows, columns, SelfLoops::as_given);
  std::set<Triple> found;
  collect(block, row_ids, column_ids, found);

  EXPECT_EQ(block.num_nonzeros(), std::ssize(inside));
  EXPECT_EQ(found, inside);
}

void expect_names(GraphStore const& store, Expected const& expected) {
  auto const& facts = store.facts();
  ASSERT_EQ(facts.num_vertices, std::ssize(expected.vertices));
  EXPECT_EQ(facts.relations, expected.relations);
  EXPECT_EQ(store.read_vertex_names({0, facts.num_vertices}), expected.vertices);
  for (Range const ids : {Range{3, 11}, Range{5, 5}, Range{facts.num_vertices - 1, facts.num_vertices}})
    EXPECT_EQ(store.read_vertex_names(ids),
              std::vector(expected.vertices.begin() + ids.begin, expected.vertices.begin() + ids.end));
  std::vector<std::int64_t> counts(expected.relations.size());
  for (auto const& triple : expected.triples)
    ++counts[index(triple[1])];
  EXPECT_EQ(facts.relation_entries, counts);
}

TEST_F(Relations, AreHeldUnderEveryPermutation) {
  Expected expected;
  auto const text = some_triples(600, expected);
  ASSERT_LT(std::ssize(expected.triples), expected.num_lines) << "no repeats";
  for (auto const kind : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                          PermutationKind::cluster, PermutationKind::pieces}) {
    PartitionOptions options;
    options.permutation = kind;
    auto const store = partitioned(text, options);
    expect_names(store, expected);
    expect_triples(store, expected.triples);
    expect_listed_triples(store, expected.triples);
  }
}

TEST_F(Relations, GetInverses) {
  Expected expected;
  auto const text = some_triples(300, expected);
  auto const num_relations = std::ssize(expected.relations);
  for (auto const& [source, relation, target] : std::set(expected.triples))
    expected.triples.insert({target, relation + num_relations, source});
  for (std::int64_t r = 0; r < num_relations; ++r)
    expected.relations.push_back("rev_" + expected.relations[index(r)]);

  auto const store = partitioned(text, {}, true);

  expect_names(store, expected);
  expect_triples(store, expected.triples);
}

TEST_F(Relations, GiveUntypedModelsEveryListedEdge) {
  auto const store = partitioned("a r b\na s b\na r b\nb r b\nb s b\nc r a\n", {});

  EXPECT_EQ(store.facts().num_entries, 5);
  EXPECT_EQ(store.facts().num_self_loops, 2);
  auto const degrees = store.read_degrees(Order::p1, {0, 3});
  EXPECT_EQ(std::multiset<std::int64_t>(degrees.begin(), degrees.end()),
            (std::multiset<std::int64_t>{0, 1, 2}));
}

TEST_F(Relations, AreChecked) {
  auto const store = partitioned("a r b\nb s c\nc r a\nc s a\n", {});
  auto const path = scratch.path() / "t.h5";
  for (std::string const array :
       {"/topology/even/relations", "/topology/odd/relations", "/relations/names/text",
        "/relations/num_entries", "/vertices/names/offsets", "/vertices/names/text"}) {
    auto const damaged = scratch.path() / "damaged.h5";
    if (comm.is_root()) {
      auto const place = StoreFile::open(self, path).array(array).offset_bytes;
      std::filesystem::copy_file(path, damaged, std::filesystem::copy_options::overwrite_existing);
      std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(place);
      auto const byte = static_cast<char>(file.get() ^ 1);
      file.seekp(place);
      file.put(byte);
    }
    runtime::barrier(runtime::host, comm);
    EXPECT_THAT(test::message_of([&] { GraphStore::open(comm, damaged).verify(comm); }),
                ::testing::HasSubstr("damaged"))
        << array;
  }
}

TEST_F(Relations, OfUmlsAreNumberedAsTheyAppear) {
  auto const path = testing::data_set("umls");
  if (path.empty()) GTEST_SKIP() << "no data set umls: set ORTHANT_DATA";
  Expected expected;
  std::ifstream file(path / "train.txt");
  std::stringstream text;
  text << file.rdbuf();
  std::string head, relation, tail;
  for (std::stringstream words(text.str()); words >> head >> relation >> tail;)
    expected.add(head, relation, tail);

  auto const store = partitioned(text.str(), {});

  EXPECT_EQ(store.facts().num_vertices, 135);
  EXPECT_EQ(store.facts().num_relations(), 46);
  EXPECT_EQ(store.facts().num_entries, 5216);
  expect_names(store, expected);
  expect_triples(store, expected.triples);
  EXPECT_EQ(partitioned(text.str(), {}, true).facts().num_relations(), 92);
  EXPECT_EQ(partitioned(text.str(), {}, true).facts().num_entries, 10432);
}

} // namespace
} // namespace orthant::graph
