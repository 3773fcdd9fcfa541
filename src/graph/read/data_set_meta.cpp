// SPDX-License-Identifier: Apache-2.0
#include "graph/path_entry.hpp"
#include "graph/read/graph_files.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/text_file.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

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

} // namespace orthant::graph
