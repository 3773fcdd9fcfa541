// SPDX-License-Identifier: Apache-2.0
#include "graph/path_entry.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/files/text_file.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace orthant::graph {

using runtime::throw_user;

namespace {

using Json = nlohmann::ordered_json;

class MetaReader {
 public:
  explicit MetaReader(std::filesystem::path const& path) : path_(path.string()) {
    static_cast<void>(runtime::detail::open_to_read(path)); // reports why the system cannot open it
    std::ifstream file(path);
    std::string head(4, '\0');
    file.read(head.data(), std::ssize(head));
    runtime::refuse_wide_text(head, path_);
    file.clear();
    file.seekg(0); // the parser itself skips a byte order mark
    try {
      json_ = Json::parse(file, [this](int depth, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::key && depth == 1) add_key(parsed.get<std::string>());
        return true;
      });
    } catch (Json::parse_error const& error) {
      throw_user("{}: not sound JSON at byte {}", path_, error.byte);
    } catch (Json::exception const&) {
      throw_user("{}: not sound JSON: a number is too large", path_);
    }
    if (!json_.is_object()) throw_user("{}: an object {{..}} is wanted", path_);
  }

  [[nodiscard]] std::string name() const {
    if (!json_.contains("name")) return {};
    auto const& value = json_["name"];
    if (!value.is_string()) throw_user("{}: name must be text", path_);
    auto name = value.get<std::string>();
    check_name(name, "name");
    return name;
  }

  /// An integer from 0 to `largest`.
  [[nodiscard]] std::optional<std::int64_t> count(std::string const& key, std::int64_t largest) const {
    if (!json_.contains(key)) return std::nullopt;
    return count_of(json_[key], key, largest);
  }

  /// The members of the object at `key`, which must be integers from 0 to `largest`; empty if the value is not an object.
  [[nodiscard]] std::map<std::string, std::int64_t> counts(std::string const& key,
                                                           std::int64_t largest) const {
    std::map<std::string, std::int64_t> found;
    if (!json_.contains(key) || !json_[key].is_object()) return found;
    for (auto const& item : json_[key].items()) {
      check_name(item.key(), "the name of a type of vertices");
      found.emplace(item.key(), count_of(item.value(), key + " of " + item.key(), largest));
    }
    return found;
  }

  [[nodiscard]] std::vector<std::string> splits() const {
    std::vector<std::string> names;
    if (!json_.contains("splits")) return names;
    if (!json_["splits"].is_object()) throw_user("{}: splits must be an object", path_);
    for (auto const& item : json_["splits"].items()) {
      check_name(item.key(), "the name of a split");
      if (!is_folder_name(item.key()))
        throw_user("{}: the split {} is not the name of a folder", path_, excerpt(item.key()));
      names.push_back(item.key());
    }
    return names;
  }

 private:
  [[nodiscard]] std::int64_t count_of(Json const& value, std::string const& key, std::int64_t largest) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(largest))
      throw_user("{}: {} is {}; a whole number from 0 to {} is wanted", path_, key, excerpt(value), largest);
    return value.get<std::int64_t>();
  }
  /// An object with the same key twice is refused, because JSON readers differ in which of the two they use.
  void add_key(std::string const& key) {
    if (!keys_.insert(key).second) throw_user("{}: the key {} is given twice", path_, excerpt(key));
  }
  /// Refuses names that cannot be part of a message of one line, or of the store.
  void check_name(std::string const& name, char const* what) const {
    constexpr std::size_t longest = 255; // like the limit of file systems for names
    if (name.size() > longest)
      throw_user("{}: {} has {} bytes; at most {} are wanted", path_, what, name.size(), longest);
    if (std::ranges::any_of(name, [](unsigned char c) { return c < 32 || c == 127; }))
      throw_user("{}: {} holds a control character; printable text is wanted", path_, what);
  }
  /// The value on one line, shortened for a message.
  static std::string excerpt(Json const& value) {
    constexpr std::size_t longest = 40;
    auto const text = value.dump(-1, ' ', true);
    return text.size() <= longest ? text : text.substr(0, longest) + "..";
  }

  std::string path_;
  std::set<std::string> keys_;
  Json json_;
};

} // namespace

DataSetMeta read_meta(std::filesystem::path const& folder) {
  DataSetMeta meta;
  auto const path = folder / "meta.json";
  if (!has_entry(path)) return meta;
  MetaReader const reader(path);
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  meta.path = path;
  meta.name = reader.name();
  meta.type_counts = reader.counts("num_nodes", most_vertices);
  if (meta.type_counts.empty()) meta.num_vertices = reader.count("num_nodes", largest);
  meta.num_edges = reader.count("num_edge_lines", largest);
  meta.num_classes = reader.count("num_classes", std::numeric_limits<std::int32_t>::max());
  meta.splits = reader.splits();
  return meta;
}

// Lists the files of the input that are read, and the other files next to them: InputFiles.

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
