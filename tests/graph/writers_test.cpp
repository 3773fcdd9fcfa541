// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/generators.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/write/write_graph.hpp"
#include "graph_probe.hpp"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace orthant::graph {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_whole;
using testing::ScratchFolder;
using testing::WholeGraph;
using testing::world;

std::string content_of(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Edge> sorted(std::vector<Edge> edges) {
  std::ranges::sort(edges);
  return edges;
}

void expect_same(WholeGraph const& read, WholeGraph const& written, bool is_sorted) {
  EXPECT_EQ(is_sorted ? sorted(read.edges) : read.edges, is_sorted ? sorted(written.edges) : written.edges);
  EXPECT_EQ(read.features, written.features);
  EXPECT_EQ(read.classes, written.classes);
  EXPECT_EQ(read.indicator, written.indicator);
  EXPECT_EQ(read.train, written.train);
  EXPECT_EQ(read.valid, written.valid);
  EXPECT_EQ(read.test, written.test);
}

class EveryFormat : public ::testing::TestWithParam<OutputFormat> {};
INSTANTIATE_TEST_SUITE_P(Writers, EveryFormat,
                         ::testing::Values(OutputFormat::ogb, OutputFormat::npy, OutputFormat::edgelist));

TEST_P(EveryFormat, ReadsBackAsItWas) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  int number = 0;
  for (std::string const word :
       {"karate", "sbm:vertices=300,edges=2000,features=7,classes=3",
        "rmat:vertices=1000,edges=3000,features=0,classes=0",
        "grid2d:vertices=50,edges=55,features=3,classes=2", "ring:vertices=3,features=1,classes=2"}) {
    auto const source = open_dataset(comm, word, 3);
    auto const path = folder.path() / fmt::format("graph-{}", number++);

    write_graph(comm, *source, path, {.format = GetParam()});
    auto const again = open_graph(comm, {.path = path});

    auto const& facts = again->facts();
    EXPECT_EQ(facts.num_vertices, source->facts().num_vertices) << word;
    EXPECT_EQ(facts.num_edges, source->facts().num_edges) << word;
    EXPECT_EQ(facts.num_classes, source->facts().num_classes) << word;
    EXPECT_EQ(facts.num_features, source->facts().num_features) << word;
    EXPECT_EQ(facts.split_name, source->facts().split_name) << word;
    expect_same(read_whole(comm, *again), read_whole(comm, *source), GetParam() == OutputFormat::edgelist);
  }
}

TEST_P(EveryFormat, KeepsWeightsSparseFeaturesAndSeveralLabels) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const bytes = [](auto const& values) {
    return std::string(reinterpret_cast<char const*>(values.data()), values.size() * sizeof(values[0]));
  };
  auto const header = [](std::string const& type, std::string const& shape) {
    auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
    text.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + "\n";
  };
  folder.write("in/edge_index.npy",
               header("<i8", "(2, 4)") + bytes(std::array<std::int64_t, 8>{2, 0, 0, 1, 0, 1, 1, 2}));
  folder.write("in/edge_weight.npy", header("<f4", "(4,)") + bytes(std::array{0.1f, -2.5f, 1e-7f, 3.0f}));
  folder.write("in/x_indptr.npy", header("<i8", "(4,)") + bytes(std::array<std::int64_t, 4>{0, 2, 2, 3}));
  folder.write("in/x_indices.npy", header("<i4", "(3,)") + bytes(std::array<std::int32_t, 3>{0, 4, 2}));
  folder.write("in/x_data.npy", header("<f4", "(3,)") + bytes(std::array{0.3f, 2.0f, -1.0f}));
  folder.write("in/x_shape.npy", header("<i8", "(2,)") + bytes(std::array<std::int64_t, 2>{3, 5}));
  folder.write("in/labels.npy",
               header("|i1", "(3, 2)") + bytes(std::array<std::int8_t, 6>{0, 1, -1, 1, 1, 0}));
  auto const source = open_graph(comm, {.path = folder.path() / "in", .is_directed = true});

  write_graph(comm, *source, folder.path() / "out", {.format = GetParam()});
  auto const again = open_graph(comm, {.path = folder.path() / "out", .is_directed = true});
  auto const read = read_whole(comm, *again, 2);

  EXPECT_TRUE(again->facts().is_weighted);
  EXPECT_EQ(again->facts().feature_kind, FeatureKind::sparse);
  EXPECT_EQ(again->facts().label_kind, LabelKind::multi);
  EXPECT_FALSE(again->facts().has_split);
  expect_same(read, read_whole(comm, *source, 2), true);
  if (GetParam() == OutputFormat::edgelist) { // sorted with their edges
    EXPECT_THAT(read.weights, ::testing::ElementsAre(-2.5f, 1e-7f, 3.0f, 0.1f));
    EXPECT_EQ(content_of(folder.path() / "out" / "edges.txt"),
              "0\t1\t-2.5\n0\t1\t1e-07\n1\t2\t3\n2\t0\t0.1\n");
  } else {
    EXPECT_THAT(read.weights, ::testing::ElementsAre(0.1f, -2.5f, 1e-7f, 3.0f));
  }
}

TEST(WriteGraph, FilesAreTheSameFromAnyNumberOfRanks) {
  auto const comm = world();
  auto const alone = comm.split(comm.rank(), 0, "self");
  ScratchFolder const folder(comm);
  std::string const word = "sbm:vertices=500,edges=3000,features=4,classes=3";

  for (auto const format : {OutputFormat::npy, OutputFormat::edgelist}) {
    write_graph(comm, *open_dataset(comm, word), folder.path() / "all",
                {.format = format, .replaces_output = true});
    if (comm.is_root())
      write_graph(alone, *open_dataset(alone, word), folder.path() / "one",
                  {.format = format, .replaces_output = true});
    runtime::barrier(runtime::host, comm);

    std::size_t num_files = 0;
    for (auto const& entry : std::filesystem::directory_iterator(folder.path() / "one")) {
      ++num_files;
      auto const other = folder.path() / "all" / entry.path().filename();
      EXPECT_TRUE(content_of(entry.path()) == content_of(other)) << other;
    }
    EXPECT_EQ(num_files, 7u); // edges, x, labels, three lists, meta.json: and no part files
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "all"), {}), 7);
    runtime::barrier(runtime::host, comm);
  }
}

TEST(WriteGraph, LeavesNothingOfAnEarlierGraphAndTouchesNoStrangersFolder) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const path = folder.path() / "g";
  write_graph(comm, *open_dataset(comm, "karate"), path, {.format = OutputFormat::npy});
  folder.write("stranger/notes.txt", "0 1\n");

  auto const ring = open_dataset(comm, "ring:vertices=9,features=0,classes=0");
  try {
    write_graph(comm, *ring, path, {.format = OutputFormat::ogb});
    ADD_FAILURE() << "replaces a graph unasked";
  } catch (runtime::UserError const& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds a graph; --force replaces it"));
  }
  EXPECT_EQ(open_graph(comm, {.path = path})->facts().num_vertices, 34);
  write_graph(comm, *ring, path, {.format = OutputFormat::ogb, .replaces_output = true});

  auto const again = open_graph(comm, {.path = path});
  EXPECT_EQ(again->facts().num_vertices, 9);
  EXPECT_EQ(again->facts().feature_kind, FeatureKind::none);
  EXPECT_EQ(again->facts().label_kind, LabelKind::none);
  auto const refused = [&](std::filesystem::path const& target) -> std::string {
    try {
      write_graph(comm, *again, target, {.replaces_output = true});
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused(folder.path() / "stranger"), HasSubstr("is not empty and was not written by Orthant"));
  EXPECT_THAT(refused(folder.path() / "stranger" / "notes.txt"), HasSubstr("it is a file"));
  EXPECT_THAT(refused(folder.path() / "stranger" / "notes.txt" / "deeper"), HasSubstr("cannot write to"));
  EXPECT_EQ(content_of(folder.path() / "stranger" / "notes.txt"), "0 1\n");
}

TEST(WriteGraph, TakesWhatAnInterruptedJobHasLeftAndReadsNoneOfIt) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const path = folder.path() / "g";
  std::string const array = "any bytes will do";
  // Killed while it wrote its files, and while it moved them to their places.
  folder.write("g/graph.partial-0123456789abcdef/x.npy", array);
  auto const message_of = [&](auto&& action) -> std::string {
    try {
      action();
    } catch (runtime::UserError const& error) {
      return error.what();
    }
    return "accepted";
  };
  auto const read = [&] { static_cast<void>(open_graph(comm, {.path = path})); };
  auto const while_writing = message_of(read);
  folder.write("g/edge_index.npy", array);
  folder.write("g/graph.moving/x.npy", array);
  auto const while_moving = message_of(read);

  write_graph(comm, *open_dataset(comm, "karate"), path, {.format = OutputFormat::npy});

  EXPECT_THAT(while_writing, HasSubstr("is not a graph"));
  EXPECT_THAT(while_moving, HasSubstr("holds a part of a graph: the job that wrote it was interrupted"));
  EXPECT_EQ(open_graph(comm, {.path = path})->facts().num_vertices, 34);
  runtime::barrier(runtime::host, comm);
  for (auto const& entry : std::filesystem::directory_iterator(path))
    EXPECT_THAT(entry.path().filename().string(), Not(AnyOf(HasSubstr("partial"), HasSubstr("moving"))));
}

/// A source that one rank cannot read to its end.
class FailingSource final : public GraphSource {
 public:
  FailingSource(std::unique_ptr<GraphSource> whole, bool fails) : whole_(std::move(whole)), fails_(fails) {}
  [[nodiscard]] GraphFacts const& facts() const override { return whole_->facts(); }
  [[nodiscard]] std::unique_ptr<EdgeStream> edges(std::int64_t size) const override {
    return whole_->edges(size);
  }
  [[nodiscard]] std::unique_ptr<FeatureStream> features(std::int64_t rows) const override {
    return whole_->features(rows);
  }
  [[nodiscard]] std::unique_ptr<LabelStream> labels(std::int64_t rows) const override {
    return whole_->labels(rows);
  }
  [[nodiscard]] SplitShare split(std::int64_t number) const override {
    if (fails_) throw std::bad_alloc();
    return whole_->split(number);
  }

 private:
  std::unique_ptr<GraphSource> whole_;
  bool fails_;
};

TEST(WriteGraph, AFailureOfOneRankLeavesTheEarlierGraph) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  auto const path = folder.path() / "g";
  write_graph(comm, *open_dataset(comm, "karate"), path, {.format = OutputFormat::npy});
  auto const before = read_whole(comm, *open_graph(comm, {.path = path}));
  FailingSource const failing(open_dataset(comm, "sbm:vertices=50"), comm.rank() == comm.size() - 1);

  EXPECT_THROW(write_graph(comm, failing, path, {.format = OutputFormat::ogb}), runtime::Error);
  EXPECT_THROW(write_graph(comm, failing, folder.path() / "new", {.format = OutputFormat::npy}),
               runtime::Error);
  runtime::barrier(runtime::host, comm);

  expect_same(read_whole(comm, *open_graph(comm, {.path = path})), before, false);
  EXPECT_FALSE(std::filesystem::exists(path / "raw"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
}

} // namespace
} // namespace orthant::graph
