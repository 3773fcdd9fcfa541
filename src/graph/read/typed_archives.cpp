// SPDX-License-Identifier: Apache-2.0
//
// Archives of OGB's heterogeneous data sets in binary form: edge_index_dict.npz with a member SOURCE___NAME___TARGET per relation,
// num_edges_dict.npz, num_nodes_dict.npz, node_feat_dict.npz and node-label.npz with a member per relation or type.
#include "graph/read/typed_files.hpp"

#include "graph/path_entry.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

namespace {

using Path = std::filesystem::path;

constexpr std::string_view array_ending = ".npy";

/// The members of an archive without their ending ".npy", by name.
std::vector<std::string> keys_of(Path const& archive) {
  auto keys = list_zip_members(archive);
  for (auto& key : keys) {
    if (!key.ends_with(array_ending)) throw_user("{}: the member {} is not an array", archive.string(), key);
    key.resize(key.size() - array_ending.size());
  }
  std::ranges::sort(keys);
  return keys;
}

} // namespace

NpyArray ArrayPlace::open(bool may_be_text) const {
  if (member.empty()) return NpyArray(path, may_be_text);
  return NpyArray(open_zip_member(path, member), may_be_text);
}

namespace detail {

std::optional<RelationFiles> relation_of(std::string const& folder) {
  for (std::string const separator : {"___", "__"}) {
    auto const first = folder.find(separator);
    if (first == std::string::npos) continue;
    auto const second = folder.find(separator, first + separator.size());
    if (second == std::string::npos || folder.find(separator, second + separator.size()) != std::string::npos)
      continue;
    RelationFiles relation{folder.substr(0, first),
                           folder.substr(first + separator.size(), second - first - separator.size()),
                           folder.substr(second + separator.size())};
    if (!relation.source.empty() && !relation.name.empty() && !relation.target.empty()) return relation;
  }
  return std::nullopt;
}

std::map<std::string, std::int64_t> read_archive_counts(Path const& archive, TypedFiles& files) {
  std::map<std::string, std::int64_t> counts;
  for (auto const& key : keys_of(archive)) {
    files.members.push_back({archive, key + ".npy"});
    auto array = ArrayPlace{archive, key + ".npy"}.open();
    if (array.num_elements() != 1) array.fail_shape("one number (a single graph)");
    array.read(0, std::span(&counts[key], 1));
  }
  return counts;
}

std::vector<RelationFiles> find_archived_relations(Path const& root, TypedFiles& files) {
  auto const archive = root / edge_archive;
  std::vector<RelationFiles> relations;
  for (auto const& key : keys_of(archive)) {
    auto relation = relation_of(key);
    if (!relation) throw_user("{}: the member {}.npy is not SOURCE___NAME___TARGET", archive.string(), key);
    relation->edges = {archive, key + ".npy"};
    files.members.push_back({archive, key + ".npy"});
    relations.push_back(*relation);
  }
  if (relations.empty()) throw_user("{} has no members", archive.string());
  auto const counts = root / "num_edges_dict.npz";
  if (!has_entry(counts)) return relations;
  files.others.push_back(counts);
  auto const numbers = read_archive_counts(counts, files);
  if (numbers.size() != relations.size())
    throw_user("{} has {} relations, and {} has {}", counts.string(), numbers.size(), archive.string(),
               relations.size());
  for (auto const& relation : relations) {
    auto const key = relation.edges.member.substr(0, relation.edges.member.size() - array_ending.size());
    auto const found = numbers.find(key);
    if (found == numbers.end()) throw_user("{} has no member {}.npy", counts.string(), key);
    auto const array = relation.edges.open();
    auto const& shape = array.shape();
    if (shape.size() != 2 || shape[0] != 2 || shape[1] != found->second)
      array.fail_shape(fmt::format("[2, {}] (as num_edges_dict.npz says)", found->second));
  }
  return relations;
}

void find_archived_arrays(Path const& raw, TypedFiles& files) {
  using Place = std::optional<ArrayPlace> TypeFiles::*;
  for (auto const& [archive, place] :
       {std::pair<std::optional<Path>, Place>(
            find_first(raw, {"node_feat_dict.npz", "node_feat.npz", "node-feat.npz"}),
            &TypeFiles::feature_npy),
        {find_first(raw, {"node-label.npz", "node_label.npz"}), &TypeFiles::label_npy}}) {
    if (!archive) continue;
    for (auto const& key : keys_of(*archive)) {
      auto const type = std::ranges::find(files.types, key, &TypeFiles::name);
      if (type == files.types.end())
        throw_user("{}: the member {}.npy is of no type of vertices", archive->string(), key);
      (*type).*place = {*archive, key + ".npy"};
      files.members.push_back({*archive, key + ".npy"});
    }
  }
}

} // namespace detail

} // namespace orthant::graph
