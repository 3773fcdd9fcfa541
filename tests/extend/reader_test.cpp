// SPDX-License-Identifier: Apache-2.0
//
// The reader of docs/extend/reader.md: the same store as from an edge list, and messages that name file and line.
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "runtime/comm/together.hpp"
#include "support/scratch_folder.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace orthant::testing {

// [docs:stream]
/// The edges of a graph file of METIS. Its first line has the numbers of vertices and edges; line i after it has the neighbors
/// of vertex i, counted from 1. Lines that begin with % are comments.
class MetisFile final : public graph::EdgeStream {
 public:
  explicit MetisFile(std::string path, std::int64_t batch_size = 1)
      : path_(std::move(path)),
        file_(path_),
        batch_size_(batch_size) {
    if (!file_) runtime::throw_user("{}: the file cannot be opened", path_);
    std::int64_t weights = 0;
    if (!next_line() || !(line_ >> num_vertices_ >> num_edges_) || num_vertices_ < 1 || num_edges_ < 0)
      fail("the numbers of vertices and edges are expected");
    if (line_ >> weights && weights != 0) fail("graphs with weights are not supported");
    line_.str("");
  }

  bool next(graph::EdgeBatch& batch) override {
    batch.edges.clear();
    while (std::ssize(batch.edges) < batch_size_) {
      std::int64_t neighbor = 0;
      if (line_ >> neighbor) {
        if (neighbor < 1 || neighbor > num_vertices_)
          fail(fmt::format("vertex {} is not in 1 to {}", neighbor, num_vertices_));
        batch.edges.push_back({vertex_ - 1, neighbor - 1}); // ids are counted from 0
        continue;
      }
      if (!line_.eof()) fail("a line has numbers only");
      if (vertex_ == num_vertices_) break;
      if (!next_line())
        fail(fmt::format("the file has {} lines of neighbors, not {}", vertex_, num_vertices_));
      ++vertex_;
    }
    return !batch.edges.empty();
  }
  [[nodiscard]] graph::Progress progress() const override { return {vertex_, num_vertices_}; }
  [[nodiscard]] std::int64_t num_vertices() const { return num_vertices_; }
  [[nodiscard]] std::int64_t num_edges() const { return num_edges_; }

 private:
  bool next_line() {
    std::string text;
    do {
      if (!std::getline(file_, text)) return false;
      ++line_number_;
    } while (text.starts_with('%'));
    line_ = std::istringstream(text);
    return true;
  }
  [[noreturn]] void fail(std::string const& what) const {
    runtime::throw_user("{}:{}: {}", path_, line_number_, what);
  }

  std::string path_;
  std::ifstream file_;
  std::istringstream line_;
  std::int64_t batch_size_, num_vertices_ = 0, num_edges_ = 0, vertex_ = 0, line_number_ = 0;
};
// [docs:end]

// [docs:source]
/// A source of the edges of such a file, without features and labels. Rank 0 reads it. Collective over `comm`.
std::unique_ptr<graph::GraphSource> open_metis(runtime::Communicator const& comm, std::string const& path) {
  graph::SourceParts parts;
  parts.name = path;
  parts.format = "metis";
  // What goes wrong on one rank ends on all ranks.
  auto const [num_vertices, num_edges] = runtime::together(comm, [&] {
    MetisFile const head(path);
    return std::pair(head.num_vertices(), head.num_edges());
  });
  parts.num_vertices = num_vertices;
  parts.edges.num_edges =
      2 * num_edges;              // the file lists both directions; reading other numbers is a UserError,
  parts.edges.promised_by = path; // which names this file
  parts.edges.open = [path,
                      reads = comm.is_root()](std::int64_t batch_size) -> std::unique_ptr<graph::EdgeStream> {
    if (!reads) return std::make_unique<graph::EmptyStream<graph::EdgeBatch>>();
    return std::make_unique<MetisFile>(path, batch_size);
  };
  return graph::assemble_source(std::move(parts));
}
// [docs:end]

namespace {

// [docs:use]
/// Partitions the file once; `orthant info --graph` and graph::GraphStore::open() read what it writes.
graph::PartitionReport to_store(runtime::Communicator const& comm, std::string const& path,
                                std::string const& store) {
  auto const source = open_metis(comm, path);
  return graph::partition(comm, *source, store, {});
}
// [docs:end]

/// A path of three vertices, and a fourth one alone.
constexpr auto small_graph = "% a comment\n4 2\n2\n1 3\n2\n\n";

class MetisReader : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(std::string const& text) const {
    auto path = folder_.file("graph.metis");
    if (world_.is_root()) test::write_file(path, text);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
  }
  void expect_refused(std::string const& text, std::string const& what) const {
    auto const path = file(text);
    try {
      to_store(world_, path, folder_.file("refused.h5"));
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (runtime::UserError const& error) {
      EXPECT_EQ(std::string(error.what()), path + what);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder folder_{MPI_COMM_WORLD};
};

TEST_F(MetisReader, GivesTheGraphOfTheSameEdgeList) {
  auto const report = to_store(world_, file(small_graph), folder_.file("metis.h5"));
  EXPECT_EQ(report.facts.num_vertices, 4);
  EXPECT_EQ(report.facts.num_entries, 4);

  graph::Input input;
  input.path = folder_.file("edges.txt");
  input.num_vertices = 4;
  if (world_.is_root()) test::write_file(input.path.string(), "0 1\n1 2\n");
  MPI_Barrier(MPI_COMM_WORLD);
  graph::partition(world_, *graph::open_graph(world_, input), folder_.file("list.h5"), {});
  auto const found = graph::GraphStore::open(world_, folder_.file("metis.h5"));
  auto const expected = graph::GraphStore::open(world_, folder_.file("list.h5"));
  auto const block = found.read_block(graph::Parity::even, {0, 4}, {0, 4});
  EXPECT_EQ(block.row_offsets, expected.read_block(graph::Parity::even, {0, 4}, {0, 4}).row_offsets);
  EXPECT_EQ(block.columns, expected.read_block(graph::Parity::even, {0, 4}, {0, 4}).columns);
}

TEST_F(MetisReader, RefusesOtherFilesByLine) {
  expect_refused("three\n", ":1: the numbers of vertices and edges are expected");
  expect_refused("4 2 11\n", ":1: graphs with weights are not supported");
  expect_refused("% a comment\n4 2\n2\n1 5\n", ":4: vertex 5 is not in 1 to 4");
  expect_refused("4 2\n2\n1 x\n", ":3: a line has numbers only");
  expect_refused("4 2\n2\n1 3\n", ":3: the file has 2 lines of neighbors, not 4");
}

} // namespace
} // namespace orthant::testing
