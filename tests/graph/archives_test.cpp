// SPDX-License-Identifier: Apache-2.0
//
// .npz archives: stored members are shared out, a deflated one is inflated by one rank, and neither is
// believed where it contradicts itself.
#include "bad_input.hpp"
#include "graph/arrays/zip_archive.hpp"
#include "npz.hpp"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <zip.h>

namespace orthant::graph {
namespace {

using runtime::Communicator;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::npy;
using testing::read_whole;
using testing::ScratchFolder;
using testing::world;
using testing::write_npz;

TEST(Archive, BinaryFormOfPapers100M) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  constexpr std::int64_t num_vertices = 1000;
  constexpr std::int64_t num_edges = 70001;
  std::vector<std::int64_t> ends;
  for (std::int64_t i = 0; i < 2 * num_edges; ++i)
    ends.push_back((i * 7919 + i / 13) % num_vertices);
  std::vector<float> features;
  std::vector<float> labels;
  for (std::int64_t i = 0; i < num_vertices; ++i) {
    features.insert(features.end(), {static_cast<float>(i), 0.5f});
    labels.push_back(i % 10 == 0 ? static_cast<float>(i % 7) : std::nanf(""));
  }
  for (bool const is_compressed : {false, true}) {
    auto const raw = folder.write("p/raw/marker", "").parent_path();
    folder.write("p/split/time/train.csv.gz", "0\n10\n");
    folder.write("p/split/time/valid.csv.gz", "20\n");
    folder.write("p/split/time/test.csv.gz", "30\n");
    if (comm.is_root()) {
      write_npz(raw / "data.npz",
                {{"edge_index.npy", npy("<i8", {2, num_edges}, ends)},
                 {"node_feat.npy", npy("<f4", {num_vertices, 2}, features)},
                 {"num_nodes_list.npy", npy<std::int64_t>("<i8", {1}, {num_vertices})},
                 {"num_edges_list.npy", npy<std::int64_t>("<i8", {1}, {num_edges})}},
                is_compressed);
      write_npz(raw / "node-label.npz", {{"node_label.npy", npy("<f4", {num_vertices, 1}, labels)}},
                is_compressed);
    }
    runtime::barrier(runtime::host, comm);

    auto const source = open_graph(comm, {.path = folder.path() / "p"});
    auto const whole = read_whole(comm, *source, 4096);

    EXPECT_EQ(source->facts().format, "ogb");
    EXPECT_EQ(source->facts().num_vertices, num_vertices);
    EXPECT_EQ(source->facts().num_classes, 7);
    EXPECT_EQ(source->facts().split_name, "time");
    EXPECT_EQ(whole.features, features);
    ASSERT_EQ(static_cast<std::int64_t>(whole.edges.size()), num_edges);
    std::int64_t num_wrong = 0;
    for (std::size_t i = 0; i < whole.edges.size(); ++i)
      if (whole.edges[i] != Edge{ends[i], ends[i + static_cast<std::size_t>(num_edges)]}) ++num_wrong;
    EXPECT_EQ(num_wrong, 0);
    for (std::size_t i = 0; i < labels.size(); ++i)
      EXPECT_EQ(whole.classes[i], i % 10 == 0 ? static_cast<std::int64_t>(i % 7) : -1);
    EXPECT_THAT(whole.train, ElementsAre(0, 10));
  }
}

TEST(Archive, MayHaveFeaturesOfEdges) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  for (bool const is_compressed : {false, true}) {
    auto const raw = folder.write("p/raw/marker", "").parent_path();
    if (comm.is_root())
      write_npz(raw / "data.npz",
                {{"edge_index.npy", npy<std::int64_t>("<i8", {2, 3}, {0, 1, 2, 1, 2, 2})},
                 {"edge_feat.npy", npy<float>("<f4", {3, 2}, {1, 2, 3, 4, 5, 6})},
                 {"num_nodes_list.npy", npy<std::int64_t>("<i8", {1}, {4})}},
                is_compressed);
    runtime::barrier(runtime::host, comm);
    auto const open = [&] {
      return open_graph(comm, {.path = folder.path() / "p", .edge_features = EdgeFeatures::mean});
    };
    EXPECT_EQ(read_whole(comm, *open()).features, (std::vector<float>{1, 2, 2, 3, 4, 5, 0, 0}));
    if (is_compressed) continue;
    if (comm.is_root()) { // a bit of the last number
      std::fstream file(raw / "data.npz", std::ios::in | std::ios::out | std::ios::binary);
      std::string const bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      constexpr float last = 6;
      auto const place = bytes.find(std::string(reinterpret_cast<char const*>(&last), sizeof(last))) + 2;
      file.seekp(static_cast<std::streamoff>(place));
      file.put(static_cast<char>(bytes[place] ^ 1));
    }
    runtime::barrier(runtime::host, comm);
    EXPECT_THAT([&] { static_cast<void>(open()); }, ::testing::ThrowsMessage<runtime::UserError>(HasSubstr(
                                                        "data.npz(edge_feat.npy): the check sum is")));
  }
}

/// The two archives in which the Deep Graph Library publishes Reddit, with members put in other members'
/// place.
void write_dgl(Communicator const& comm, std::filesystem::path const& folder, bool is_compressed,
               std::vector<std::pair<std::string, std::string>> const& replaced = {}) {
  if (comm.is_root()) {
    std::vector<std::pair<std::string, std::string>> graph{
        {"row.npy", npy<std::int32_t>("<i4", {6}, {0, 1, 1, 2, 3, 0})},
        {"col.npy", npy<std::int32_t>("<i4", {6}, {1, 0, 2, 1, 0, 3})},
        {"format.npy", npy<char>("|S3", {}, {'c', 'o', 'o'})},
        {"shape.npy", npy<std::int64_t>("<i8", {2}, {4, 4})},
        {"data.npy", npy<double>("<f8", {6}, {1, 1, 1, 1, 1, 1})}};
    std::vector<std::pair<std::string, std::string>> data{
        {"feature.npy", npy<double>("<f8", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
        {"node_types.npy", npy<std::int32_t>("<i4", {4}, {1, 3, 2, 1})},
        {"node_ids.npy", npy<std::int32_t>("<i4", {4}, {9, 8, 7, 6})},
        {"label.npy", npy<std::int32_t>("<i4", {4}, {2, 0, 1, 1})}};
    for (auto* const members : {&graph, &data})
      for (auto& [name, content] : *members)
        for (auto const& [other, replacement] : replaced)
          if (other == name) content = replacement;
    write_npz(folder / "reddit_graph.npz", graph, is_compressed);
    write_npz(folder / "reddit_data.npz", data, is_compressed);
  }
  runtime::barrier(runtime::host, comm);
}

TEST(Archive, RedditOfTheDeepGraphLibrary) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  for (bool const is_compressed : {false, true}) {
    write_dgl(comm, folder.write("r/marker", "").parent_path(), is_compressed);

    auto const source = open_graph(comm, {.path = folder.path() / "r"});
    auto const whole = read_whole(comm, *source, 4);

    EXPECT_EQ(source->facts().num_vertices, 4);
    EXPECT_EQ(source->facts().num_edges, 6);
    EXPECT_EQ(source->facts().num_classes, 3);
    EXPECT_FALSE(source->facts().is_weighted);
    EXPECT_THAT(whole.edges, ::testing::UnorderedElementsAre(Edge{0, 1}, Edge{1, 0}, Edge{1, 2}, Edge{2, 1},
                                                             Edge{3, 0}, Edge{0, 3}));
    EXPECT_THAT(whole.features, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_THAT(whole.classes, ElementsAre(2, 0, 1, 1));
    EXPECT_THAT(whole.train, ElementsAre(0, 3));
    EXPECT_THAT(whole.valid, ElementsAre(2));
    EXPECT_THAT(whole.test, ElementsAre(1));
  }
}

TEST_F(BadInput, SciPyMatricesThatAreNoGraph) {
  auto const mistake = [&](std::string const& member, std::string const& content) {
    write_dgl(comm_, folder_.write("r/marker", "").parent_path(), true, {{member, content}});
    return message_of("r");
  };

  EXPECT_THAT(mistake("shape.npy", npy<std::int64_t>("<i8", {2}, {4, 5})), HasSubstr("4 rows and 5 columns"));
  EXPECT_THAT(mistake("shape.npy", npy<std::int64_t>("<i8", {2}, {3, 3})), HasSubstr("says 3 vertices, but"));
  EXPECT_THAT(mistake("col.npy", npy<std::int32_t>("<i4", {5}, {1, 0, 2, 1, 0})),
              AllOf(HasSubstr("col.npy"), HasSubstr("[6]")));
  EXPECT_THAT(mistake("col.npy", npy<std::int32_t>("<i4", {6}, {1, 0, 2, 1, 0, 4})),
              AllOf(HasSubstr("col.npy"), HasSubstr("id 4 at element 5")));
  EXPECT_THAT(mistake("row.npy", npy<float>("<f4", {6}, {0, 1, 1, 2, 3, 0})), HasSubstr("astype('int64')"));
  EXPECT_THAT(mistake("node_types.npy", npy<std::int32_t>("<i4", {4}, {1, 4, 2, 1})),
              AllOf(HasSubstr("node_types.npy"), HasSubstr("4 at element 1")));
  EXPECT_THAT(mistake("node_types.npy", npy<std::int32_t>("<i4", {3}, {1, 3, 2})),
              AllOf(HasSubstr("says 4 vertices, but"), HasSubstr("node_types.npy) says 3")));
}

TEST_F(BadInput, SciPyMatrixInCompressedRows) {
  auto const graph = folder_.write("r/marker", "").parent_path() / "x_graph.npz";
  if (comm_.is_root())
    write_npz(graph,
              {{"indptr.npy", npy<std::int32_t>("<i4", {3}, {0, 1, 2})},
               {"indices.npy", npy<std::int32_t>("<i4", {2}, {1, 0})},
               {"shape.npy", npy<std::int64_t>("<i8", {2}, {2, 2})}},
              true);
  runtime::barrier(runtime::host, comm_);

  EXPECT_THAT(message_of("r"), HasSubstr("matrix.tocoo()"));
}

constexpr std::int64_t num_vertices = 30000;
constexpr std::int64_t num_edges = 90001;

/// Edges, features of 4 columns and labels, in archives.
void write_archives(Communicator const& comm, ScratchFolder const& folder, bool is_compressed) {
  auto const raw = folder.write("g/raw/marker", "").parent_path();
  if (comm.is_root()) {
    std::vector<std::int64_t> ends(2 * num_edges);
    for (std::size_t i = 0; i < ends.size(); ++i)
      ends[i] = static_cast<std::int64_t>(i * 7919 % num_vertices);
    std::vector<float> features(4 * num_vertices);
    for (std::size_t i = 0; i < features.size(); ++i)
      features[i] = static_cast<float>(i % 97);
    std::vector<float> const labels(num_vertices, 1);
    write_npz(raw / "data.npz",
              {{"edge_index.npy", npy("<i8", {2, num_edges}, ends)},
               {"node_feat.npy", npy("<f4", {num_vertices, 4}, features)},
               {"num_nodes_list.npy", npy<std::int64_t>("<i8", {1}, {num_vertices})}},
              is_compressed);
    write_npz(raw / "node-label.npz", {{"node_label.npy", npy("<f4", {num_vertices, 1}, labels)}},
              is_compressed);
  }
  runtime::barrier(runtime::host, comm);
}

/// Bytes that all ranks together have read or inflated at the end of the stream. Collective.
template<class Batch>
std::int64_t cost_of(Communicator const& comm, BatchStream<Batch>& stream) {
  Batch batch;
  runtime::together(comm, [&] {
    while (stream.next(batch)) {
    }
  });
  auto const progress = stream.progress();
  EXPECT_EQ(progress.done, progress.total);
  return runtime::all_reduced(comm, progress.done);
}

TEST(Archive, IsInflatedByOneRankHoweverManyThereAre) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  write_archives(comm, folder, true);

  auto const source = open_graph(comm, {.path = folder.path() / "g"});

  EXPECT_EQ(source->num_local_edges(), comm.is_root() ? num_edges : 0);
  // All sources, and beside them the targets, for which the sources are passed over once more.
  EXPECT_EQ(cost_of(comm, *source->edges(4096)), 3 * 8 * num_edges);
  EXPECT_EQ(cost_of(comm, *source->features(1000)), 4 * 4 * num_vertices);
  EXPECT_EQ(cost_of(comm, *source->labels(1000)), 4 * num_vertices);
}

TEST(Archive, StoredMembersAreSharedOut) {
  auto const comm = world();
  ScratchFolder const folder(comm);
  write_archives(comm, folder, false);

  auto const source = open_graph(comm, {.path = folder.path() / "g"});

  EXPECT_EQ(source->num_local_edges(), runtime::balanced_range(num_edges, comm.size(), comm.rank()).size());
  EXPECT_EQ(cost_of(comm, *source->edges(4096)), 2 * 8 * num_edges);
  EXPECT_EQ(cost_of(comm, *source->features(1000)), 4 * 4 * num_vertices);
  EXPECT_EQ(cost_of(comm, *source->labels(1000)), 4 * num_vertices);
}

class BadArchive : public BadInput {
 protected:
  std::filesystem::path const archive_ = folder_.write("g/raw/marker", "").parent_path() / "data.npz";

  static constexpr float last_feature = 1.2345678F;

  /// What a user is told after `change` to the bytes of a sound archive.
  std::string message_after(bool is_compressed, std::function<void(std::string&)> const& change) const {
    if (comm_.is_root()) {
      write_npz(archive_,
                {{"edge_index.npy", npy<std::int64_t>("<i8", {2, 3}, {0, 1, 2, 1, 2, 3})},
                 {"node_feat.npy", npy<float>("<f4", {4, 2}, {1, 2, 3, 4, 5, 6, 7, last_feature})},
                 {"edge_twice.npy", "x"}},
                is_compressed);
      std::ifstream file(archive_, std::ios::binary);
      std::string bytes(std::istreambuf_iterator<char>(file), {});
      file.close();
      change(bytes);
      std::ofstream(archive_, std::ios::binary) << bytes;
    }
    runtime::barrier(runtime::host, comm_);
    return message_of("g");
  }

  /// Changes a field of the second member, in the directory and at the member itself, where it stands 2 bytes
  /// earlier.
  template<class T>
  static void put(std::string& bytes, std::size_t field, T value) {
    constexpr std::size_t name_at_member = 30;
    auto const member = bytes.find("node_feat.npy") - name_at_member;
    auto const entry = bytes.find("PK\x01\x02", bytes.find("PK\x01\x02") + 1);
    std::memcpy(bytes.data() + entry + field, &value, sizeof(value));
    std::memcpy(bytes.data() + member + field - 2, &value, sizeof(value));
  }
  // Fields of an entry of the directory.
  static constexpr std::size_t method = 10;
  static constexpr std::size_t check_sum = 16;
  static constexpr std::size_t packed_size = 20;
  static constexpr std::size_t size = 24;
};

TEST_F(BadArchive, ThatDoesNotMatchItsCheckSum) {
  auto const flip = [](std::string& bytes) { // a bit of the last feature
    std::string const pattern(reinterpret_cast<char const*>(&last_feature), sizeof(last_feature));
    bytes[bytes.find(pattern) + 1] ^= 1;
  };

  EXPECT_EQ(message_after(false, [](std::string&) {}), "accepted");
  EXPECT_EQ(message_after(true, [](std::string&) {}), "accepted");
  EXPECT_THAT(message_after(false, flip), HasSubstr("data.npz(node_feat.npy): the check sum is"));
  EXPECT_THAT(message_after(true, [](std::string& bytes) { put(bytes, check_sum, std::uint32_t{1}); }),
              HasSubstr("data.npz(node_feat.npy): CRC error"));
}

TEST_F(BadArchive, ThatClaimsMoreThanItCanHold) {
  auto const claim = [](std::string& bytes) { put(bytes, size, std::uint32_t{0xfffffff0}); };

  constexpr auto text = "data.npz(node_feat.npy): 4294967280 bytes are claimed, more than the archive";
  EXPECT_THAT(message_after(true, claim), HasSubstr(text));
  // libzip from 1.11 on finds by itself that a stored member has two sizes.
  EXPECT_THAT(message_after(false, claim),
              ::testing::AnyOf(HasSubstr(text), HasSubstr("sizes don't match for stored file")));
  EXPECT_THAT(message_after(true,
                            [&](std::string& bytes) {
                              claim(bytes);
                              put(bytes, packed_size, std::uint32_t{0x7fffffff});
                            }),
              HasSubstr("data.npz"));
  EXPECT_THAT(message_after(true, [](std::string& bytes) { put(bytes, method, std::uint16_t{12}); }),
              HasSubstr("data.npz(node_feat.npy): compression method 12 cannot be read"));
}

TEST_F(BadArchive, WhoseDirectoryNamesAnotherMember) {
  EXPECT_THAT(message_after(false, [](std::string& bytes) { bytes[bytes.find("edge_index")] = 'f'; }),
              HasSubstr("data.npz as an .npz archive"));
}

TEST_F(BadArchive, ThatHoldsAMemberTwice) {
  auto const rename = [](std::string& bytes) {
    std::string const from = "edge_twice";
    for (auto at = bytes.find(from); at != std::string::npos; at = bytes.find(from))
      bytes.replace(at, from.size(), "edge_index");
  };

  EXPECT_THAT(message_after(false, rename), HasSubstr("data.npz holds two members of the same name"));
}

TEST_F(BadInput, ArchivesThatLackSomething) {
  auto const raw = folder_.write("p/raw/marker", "").parent_path();
  folder_.write("p/raw/data.npz", "not a zip archive");
  EXPECT_THAT(message_of("p"), AllOf(HasSubstr("data.npz"), HasSubstr("as an .npz archive")));
  if (comm_.is_root()) {
    std::filesystem::remove(raw / "data.npz");
    int code = 0;
    auto* const archive = zip_open((raw / "data.npz").c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    auto* const data = zip_source_buffer(archive, "x", 1, 0);
    static_cast<void>(zip_file_add(archive, "node_feat.npy", data, 0));
    zip_close(archive);
  }
  runtime::barrier(runtime::host, comm_);
  EXPECT_THAT(message_of("p"), HasSubstr("data.npz has no member edge_index.npy; it holds node_feat.npy"));
}

} // namespace
} // namespace orthant::graph
