#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A whole graph source gathered on every rank, and folders and files to try readers on.

#include "graph/arrays/npy.hpp"
#include "graph/graph_source.hpp"
#include "graph/write/write_graph.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

namespace orthant::testing {

inline runtime::Communicator world() {
  return runtime::Communicator(MPI_COMM_WORLD, "world");
}

/// `values` of all ranks, one rank after the other.
template<class T>
std::vector<T> gather_all(runtime::Communicator const& comm, std::vector<T> const& values) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  std::vector<std::int64_t> const mine{static_cast<std::int64_t>(values.size())};
  runtime::all_gather(runtime::host, comm, mine, counts);
  std::int64_t total = 0;
  for (auto const count : counts)
    total += count;
  std::vector<T> all(static_cast<std::size_t>(total));
  runtime::all_gatherv(runtime::host, comm, values, all, counts);
  return all;
}

struct WholeGraph {
  std::vector<graph::Edge> edges; // in the order of the ranks
  std::vector<float> weights;
  std::vector<std::int64_t> relations;
  std::vector<float> features;       // [N x D], dense whatever the kind
  std::vector<std::int64_t> classes; // [N]
  std::vector<std::int64_t> indicator;
  std::vector<double> targets;
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> valid;
  std::vector<std::int64_t> test;
};

/// Everything of a stream of this rank's rows, checked to come in order.
template<class Batch, class Take>
void drain(graph::BatchStream<Batch>& stream, Take&& take) {
  Batch batch;
  while (stream.next(batch))
    take(batch);
}

/// `values` of `rows` in the order of the rows, each of which must be there once.
template<class T>
std::vector<T> in_order(std::vector<T> const& values, std::vector<std::int64_t> const& rows,
                        std::int64_t num_rows) {
  if (values.empty()) return values;
  ORTHANT_REQUIRE(static_cast<std::int64_t>(rows.size()) == num_rows, rows.size(), " rows");
  auto const width = values.size() / rows.size();
  std::vector<T> result(values.size());
  std::vector<bool> is_there(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const row = static_cast<std::size_t>(rows[i]);
    ORTHANT_REQUIRE(row < rows.size() && !is_there[row], "row ", row);
    is_there[row] = true;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                result.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
  return result;
}

/// Reads all of `source` in small batches. Collective. Errors of one rank are thrown on all.
inline WholeGraph read_whole(runtime::Communicator const& comm, graph::GraphSource const& source,
                             std::int64_t batch_size = 1000) {
  auto const& facts = source.facts();
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> relations;
  WholeGraph mine;
  std::vector<std::int64_t> feature_rows;
  std::vector<std::int64_t> label_rows;
  auto const take_edges = [&](graph::EdgeBatch const& batch, graph::EdgeStream const&) {
    ORTHANT_REQUIRE(static_cast<std::int64_t>(batch.edges.size()) <= batch_size);
    ORTHANT_REQUIRE(batch.weights.size() == (facts.is_weighted ? batch.edges.size() : 0));
    for (auto const& edge : batch.edges)
      ends.insert(ends.end(), {edge.source, edge.target});
    mine.weights.insert(mine.weights.end(), batch.weights.begin(), batch.weights.end());
    relations.insert(relations.end(), batch.relations.begin(), batch.relations.end());
  };
  graph::for_each_edge_batch(comm, source, batch_size, take_edges);
  runtime::together(comm, [&] {
    auto const num_columns = static_cast<std::size_t>(facts.num_features);
    if (facts.feature_kind != graph::FeatureKind::none)
      drain(*source.features(batch_size), [&](graph::FeatureBatch const& batch) {
        ORTHANT_REQUIRE(feature_rows.empty() || batch.rows.begin > feature_rows.back(), "rows ascend");
        for (auto row = batch.rows.begin; row < batch.rows.end; ++row)
          feature_rows.push_back(row);
        if (facts.feature_kind == graph::FeatureKind::dense) {
          mine.features.insert(mine.features.end(), batch.dense.begin(), batch.dense.end());
          return;
        }
        auto const first = mine.features.size();
        mine.features.resize(first + static_cast<std::size_t>(batch.rows.size()) * num_columns);
        for (std::size_t row = 0; row + 1 < batch.offsets.size(); ++row)
          for (auto i = batch.offsets[row]; i < batch.offsets[row + 1]; ++i) {
            auto const entry = static_cast<std::size_t>(i);
            mine.features[first + row * num_columns + static_cast<std::size_t>(batch.columns[entry])] =
                batch.values[entry];
          }
      });
    if (facts.label_kind != graph::LabelKind::none)
      drain(*source.labels(batch_size), [&](graph::LabelBatch const& batch) {
        ORTHANT_REQUIRE(label_rows.empty() || batch.rows.begin > label_rows.back(), "rows ascend");
        for (auto row = batch.rows.begin; row < batch.rows.end; ++row)
          label_rows.push_back(row);
        mine.classes.insert(mine.classes.end(), batch.classes.begin(), batch.classes.end());
        mine.indicator.insert(mine.indicator.end(), batch.indicator.begin(), batch.indicator.end());
        mine.targets.insert(mine.targets.end(), batch.targets.begin(), batch.targets.end());
      });
    if (facts.has_split) {
      auto const split = source.split(0);
      mine.train = split.train;
      mine.valid = split.valid;
      mine.test = split.test;
    }
  });

  WholeGraph all;
  auto const all_ends = gather_all(comm, ends);
  for (std::size_t i = 0; i < all_ends.size(); i += 2)
    all.edges.push_back({all_ends[i], all_ends[i + 1]});
  source.check_num_edges(static_cast<std::int64_t>(all.edges.size()));
  all.relations = gather_all(comm, relations);
  all.weights = gather_all(comm, mine.weights);
  all.features =
      in_order(gather_all(comm, mine.features), gather_all(comm, feature_rows), facts.num_vertices);
  all.classes = in_order(gather_all(comm, mine.classes), gather_all(comm, label_rows), facts.num_vertices);
  all.indicator =
      in_order(gather_all(comm, mine.indicator), gather_all(comm, label_rows), facts.num_vertices);
  all.targets = in_order(gather_all(comm, mine.targets), gather_all(comm, label_rows), facts.num_vertices);
  all.train = gather_all(comm, mine.train);
  all.valid = gather_all(comm, mine.valid);
  all.test = gather_all(comm, mine.test);
  for (auto* const list : {&all.train, &all.valid, &all.test})
    std::ranges::sort(*list);
  return all;
}

/// A new folder that all ranks see, removed at the end. Collective.
class ScratchFolder {
 public:
  explicit ScratchFolder(runtime::Communicator const& comm) : comm_(comm) {
    if (comm.is_root()) {
      auto pattern = (std::filesystem::temp_directory_path() / "orthant-XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) std::abort();
      path_ = pattern;
    }
    auto const text = path_.string();
    std::vector<std::int64_t> characters(256);
    std::ranges::copy(text, characters.begin());
    runtime::broadcast(runtime::host, comm, characters, 0);
    std::string shared;
    for (auto const character : characters)
      if (character != 0) shared.push_back(static_cast<char>(character));
    path_ = shared;
  }
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;
  ~ScratchFolder() {
    runtime::barrier(runtime::host, comm_);
    std::error_code ignored;
    if (comm_.is_root()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::filesystem::path const& path() const { return path_; }

  /// Writes `path/name` on the root, making folders on the way; ".gz" names are compressed. Returns its path.
  std::filesystem::path write(std::string const& name, std::string_view content) const {
    auto const file = path_ / name;
    if (comm_.is_root()) {
      std::filesystem::create_directories(file.parent_path());
      if (file.extension() == ".gz") {
        auto* const gz = gzopen(file.c_str(), "wb6");
        if (!content.empty() && gzwrite(gz, content.data(), static_cast<unsigned>(content.size())) == 0)
          std::abort();
        gzclose(gz);
      } else {
        std::ofstream(file, std::ios::binary) << content;
      }
    }
    runtime::barrier(runtime::host, comm_);
    return file;
  }

 private:
  runtime::Communicator const& comm_;
  std::filesystem::path path_;
};

/// A .npy file as a string.
template<class T>
std::string npy(std::string const& type, std::vector<std::int64_t> const& shape,
                std::vector<T> const& values) {
  return graph::npy_header(type, shape) +
         std::string(reinterpret_cast<char const*>(values.data()), values.size() * sizeof(T));
}

/// ORTHANT_DATA/datasets/NAME, empty where the data are not there.
inline std::filesystem::path data_set(std::string const& name) {
  char const* const data = std::getenv("ORTHANT_DATA");
  if (data == nullptr) return {};
  auto const path = std::filesystem::path(data) / "datasets" / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

} // namespace orthant::testing
