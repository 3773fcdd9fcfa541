// SPDX-License-Identifier: Apache-2.0
#include "graph/write/output_folder.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/folder_entries.hpp"
#include "runtime/files/repeated_call.hpp"
#include "runtime/files/writable_file.hpp"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace orthant::graph {

using runtime::throw_user;
namespace fs = std::filesystem;

namespace {

constexpr char const* writer = "orthant";
constexpr std::string_view graph_name = "graph";         // graph.partial-..: files are being written
constexpr std::string_view moving_name = "graph.moving"; // they are complete and on their way to their places

bool is_ours(fs::path const& folder) {
  std::ifstream file(folder / "meta.json");
  if (!file) return fs::exists(folder / moving_name);
  auto const json = nlohmann::json::parse(file, nullptr, false);
  return json.is_object() && json.contains("written_by") && json["written_by"] == writer;
}

/// True if nothing is in the folder but what jobs that were interrupted have left.
bool is_free(fs::path const& folder) {
  return std::ranges::all_of(runtime::folder_entries(folder), [](std::string const& name) {
    return name == moving_name || runtime::is_partial_name(name, graph_name);
  });
}

/// Brings the entries of a folder and of all folders below it to the disk.
void sync_folders(fs::path const& folder, runtime::FileName const& output) {
  for (auto const& name : runtime::folder_entries(folder))
    if (fs::is_directory(folder / name)) sync_folders(folder / name, output);
  runtime::sync_folder(folder, output);
}

/// Moves everything from one folder to another, or nothing: a part of a graph would look like a smaller
/// graph.
void move_all(fs::path const& from, fs::path const& to) {
  auto const names = runtime::folder_entries(from);
  std::size_t num_moved = 0;
  try {
    for (; num_moved < names.size(); ++num_moved)
      fs::rename(from / names[num_moved], to / names[num_moved]);
  } catch (fs::filesystem_error const&) {
    std::error_code ignored;
    while (num_moved-- > 0)
      fs::rename(to / names[num_moved], from / names[num_moved], ignored);
    throw;
  }
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

OutputFolder::OutputFolder(runtime::Communicator const& comm, fs::path folder, bool replaces_output)
    : comm_(comm),
      folder_(std::move(folder)) {
  auto const token = runtime::draw_token(comm_);
  runtime::together(comm_, [&] {
    staging_ = std::make_unique<runtime::TemporaryPath>(runtime::partial_name(folder_ / graph_name, token));
  });
  runtime::together(comm_, [&] {
    if (comm_.is_root()) prepare(replaces_output);
  });
}

OutputFolder::~OutputFolder() {
  staging_.reset();
  if (is_made_here_) ::rmdir(folder_.c_str()); // fails if there is anything in it
}

void OutputFolder::prepare(bool replaces_output) {
  try {
    if (fs::exists(folder_) && !fs::is_directory(folder_))
      throw_user("cannot write to {}: it is a file; a folder is wanted", folder_.string());
    is_made_here_ = fs::create_directories(folder_);
    if (!is_free(folder_)) {
      if (!is_ours(folder_))
        throw_user("{} is not empty and was not written by Orthant; name a new folder", folder_.string());
      if (!replaces_output && !fs::exists(folder_ / moving_name))
        throw_user("{} holds a graph; --force replaces it", folder_.string());
    }
    runtime::remove_leftovers(folder_ / graph_name);
    fs::create_directory(path());
    in_use_ = runtime::detail::Descriptor(
        runtime::repeated([&] { return ::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (in_use_.owns()) static_cast<void>(::flock(in_use_.get(), LOCK_SH | LOCK_NB));
  } catch (fs::filesystem_error const& error) {
    throw_user("cannot write to {}: {}", folder_.string(), error.code().message());
  }
}

void OutputFolder::make_folder(fs::path const& name) const {
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) return;
    std::error_code error;
    fs::create_directories(path() / name, error);
    if (error) throw_user("cannot write to {}: {}", (folder_ / name).string(), error.message());
  });
}

void OutputFolder::publish() {
  runtime::together(comm_, [&] {
    if (comm_.is_root()) move_files();
  });
  staging_->keep();
  is_made_here_ = false;
}

void OutputFolder::move_files() {
  auto const moving = folder_ / moving_name;
  try {
    sync_folders(path(), {"graph", folder_});
    fs::remove_all(moving); // of a job that was interrupted here
    fs::rename(path(), moving);
    remove_graph(folder_);
    move_all(moving, folder_);
    runtime::sync_folder(folder_, {"graph", folder_});
    fs::remove(moving); // the graph is complete
    runtime::sync_folder(folder_, {"graph", folder_});
  } catch (fs::filesystem_error const& error) {
    throw_user("cannot complete the graph in {}: {}", folder_.string(), error.code().message());
  }
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
    auto const path = folder / "meta.json";
    runtime::WritableFile file(path, runtime::WritableFile::Mode::create, {"graph", final_place(path)});
    file.append(json.dump(1) + '\n');
    file.sync();
    file.close();
  });
}

void require_complete_graph(fs::path const& folder) {
  std::error_code ignored;
  if (fs::exists(folder / moving_name, ignored))
    throw_user("{} holds a part of a graph: the job that wrote it was interrupted; write it again",
               folder.string());
}

fs::path final_place(fs::path const& path) {
  fs::path place;
  for (auto const& part : path)
    if (!runtime::is_partial_name(part.string(), graph_name)) place /= part;
  return place;
}

} // namespace orthant::graph
