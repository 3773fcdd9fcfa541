// SPDX-License-Identifier: Apache-2.0
//
// Lists the files of the input that are read, and the other files next to them: InputFiles.
#include "graph/read/graph_files.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/files/temporary_path.hpp"

#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace orthant::graph {

namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

void add(Paths& paths, std::optional<fs::path> const& path) {
  if (path) paths.push_back(*path);
}

Paths feature_files(GraphFiles const& files, bool has_own) {
  Paths paths;
  add(paths, files.feature_text);
  if (!paths.empty() || has_own) return paths; // has_own: they are in the archive of the edges
  add(paths, files.feature_npy);
  if (files.sparse_npy && paths.empty())
    for (auto const* const name : {"x_indptr.npy", "x_indices.npy", "x_data.npy", "x_shape.npy"})
      paths.push_back(*files.sparse_npy / name);
  return paths;
}

Paths label_files(GraphFiles const& files, bool has_table) {
  Paths paths;
  for (auto const& path : {files.label_text, files.label_npz, files.label_npy})
    if (paths.empty()) add(paths, path);
  if (!paths.empty() || has_table) add(paths, files.class_list);
  return paths;
}

Paths split_files(GraphFiles const& files) {
  for (auto const& lists : {files.split_text, files.split_npy, files.split_masks})
    if (lists) {
      Paths paths(lists->begin(), lists->end());
      std::erase(paths, fs::path());
      return paths;
    }
  return {};
}

/// Adds the unused entries of `folder`, that is, all except the files that are read and the folders that contain them.
void add_unused(fs::path const& folder, fs::path const& root, Paths const& used,
                std::vector<std::string>& unused) {
  std::set<fs::path> on_the_way(used.begin(), used.end());
  for (auto const& path : used)
    for (auto parent = path.parent_path(); parent != parent.root_path() && !parent.empty();
         parent = parent.parent_path())
      on_the_way.insert(parent);
  std::error_code ignored; // a folder that cannot be listed has no entries
  for (auto const& name : runtime::folder_entries(folder, ignored)) {
    auto const path = folder / name;
    if (name.starts_with('.') || on_the_way.contains(path)) continue;
    unused.push_back(path.lexically_relative(root).string() + (fs::is_directory(path, ignored) ? "/" : ""));
  }
}

} // namespace

InputFiles list_files(fs::path const& input, Paths used) {
  InputFiles result;
  auto const is_folder = fs::is_directory(input);
  auto root = fs::absolute(input).lexically_normal();
  if (root.filename().empty()) root = root.parent_path();
  std::set<fs::path> folders;
  for (auto& path : used) {
    path = fs::absolute(path).lexically_normal();
    result.read.push_back(is_folder ? path.lexically_relative(root).string() : path.filename().string());
    // Folders outside `root` are not part of the input.
    for (auto folder = path.parent_path(); folder.string().size() > root.string().size();
         folder = folder.parent_path())
      folders.insert(folder);
  }
  if (!is_folder) return result;
  folders.insert(root);
  for (auto const& folder : folders)
    add_unused(folder, root, used, result.unused);
  return result;
}

InputFiles Opener::describe_files() const {
  Paths used{files.edges};
  if (parts.edges.is_weighted && files.edge_weights) add(used, files.edge_weights);
  if (files.edge_features != files.edges) add(used, files.edge_features);
  for (auto const& path : {files.num_nodes, files.num_edges, files.dgl_data})
    add(used, path);
  if (files.csv) used.insert(used.end(), {files.csv->vertices[0].path, files.csv->path});
  auto const append = [&](Paths const& paths) { used.insert(used.end(), paths.begin(), paths.end()); };
  auto const is_archive = files.topology == GraphFiles::Topology::ogb_npz && attributes.features;
  if (input.random_features == 0) append(feature_files(files, is_archive));
  if (input.random_labels == 0 && !files.dgl_data) append(label_files(files, csv.label.has_value()));
  if (!input.random_split && !files.dgl_data) append(split_files(files));
  if (!files.meta.path.empty()) used.push_back(files.meta.path);

  auto result = list_files(input.path, used);
  result.notes = notes;
  for (auto const& path : used)
    if (auto const is_text = path.extension() == ".csv" || path.extension() == ".gz";
        is_text && !files.csv && path != files.edges && path != files.class_list && has_names_line(path))
      result.notes.push_back(path.filename().string() + " begins with a line of names, which is ignored");
  return result;
}

} // namespace orthant::graph
