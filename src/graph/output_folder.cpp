// SPDX-License-Identifier: Apache-2.0
#include "graph/output_folder.hpp"

#include "runtime/together.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace orthant::graph {

using runtime::throw_user;
namespace fs = std::filesystem;

namespace {

constexpr char const* writer = "orthant";

bool is_ours(fs::path const& folder) {
  std::ifstream file(folder / "meta.json");
  if (!file) return false;
  auto const json = nlohmann::json::parse(file, nullptr, false);
  return json.is_object() && json.contains("written_by") && json["written_by"] == writer;
}

void remove_graph(fs::path const& folder) {
  for (auto const* const name : {"raw", "split", "npy"})
    fs::remove_all(folder / name);
  for (auto const* const name : {"edges.txt", "edge_index.npy", "edge_weight.npy", "x.npy", "x_indptr.npy",
                                 "x_indices.npy", "x_data.npy", "x_shape.npy", "labels.npy", "train_idx.npy",
                                 "valid_idx.npy", "test_idx.npy", "meta.json"})
    fs::remove(folder / name);
}

} // namespace

void prepare_output_folder(runtime::Communicator const& comm, fs::path const& folder, bool replaces_output) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    try {
      if (fs::exists(folder) && !fs::is_directory(folder))
        throw_user("cannot write to {}: it is a file; a folder is wanted", folder.string());
      if (fs::exists(folder) && !fs::is_empty(folder)) {
        if (!replaces_output && !is_ours(folder))
          throw_user("{} is not empty and was not written by Orthant; name a new folder", folder.string());
        remove_graph(folder);
      }
      fs::create_directories(folder);
    } catch (fs::filesystem_error const& error) {
      throw_user("cannot write to {}: {}", folder.string(), error.code().message());
    }
  });
}

void write_meta(runtime::Communicator const& comm, fs::path const& folder, GraphFacts const& facts,
                std::int64_t num_edges, std::array<std::int64_t, 3> split_sizes) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    nlohmann::ordered_json json;
    json["name"] = facts.name;
    json["written_by"] = writer;
    json["directed"] = facts.is_directed;
    json["add_inverse_edge"] = !facts.is_directed;
    json["num_nodes"] = facts.num_vertices;
    json["num_edge_lines"] = num_edges;
    if (facts.feature_kind != FeatureKind::none) json["num_features"] = facts.num_features;
    if (facts.label_kind != LabelKind::none) json["num_classes"] = facts.num_classes;
    if (facts.has_split) json["splits"][facts.split_name] = split_sizes;
    std::ofstream file(folder / "meta.json");
    file << json.dump(1) << '\n';
    file.flush();
    if (!file) throw_user("cannot write {}: {}", (folder / "meta.json").string(), std::strerror(errno));
  });
}

} // namespace orthant::graph
