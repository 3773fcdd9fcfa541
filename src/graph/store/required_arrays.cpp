// SPDX-License-Identifier: Apache-2.0
//
// The arrays that the facts of a store require.
#include "graph/store/distribution.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_file.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <span>

namespace orthant::graph {

using runtime::Hdf5Type;
using runtime::throw_user;
using Extents = runtime::Hdf5File::Extents;

namespace {

struct Expected {
  std::string name;
  std::vector<Hdf5Type> types; // allowed types
  Extents extents;
};

/// Arrays with checksums, except the tables of tiles.
std::vector<Expected> plain_arrays(StoreFacts const& facts) {
  std::vector<Hdf5Type> const integers{Hdf5Type::int32, Hdf5Type::int64}; // the smaller one if it suffices
  auto const n = facts.num_vertices;
  std::vector<Expected> arrays;
  for (auto const& order : order_names(facts)) {
    auto const vertices = "/vertices/" + order;
    arrays.push_back({vertices + "/original_ids", integers, {n}});
    arrays.push_back({vertices + "/degrees", integers, {n}});
    if (facts.has_two_orders()) arrays.push_back({vertices + "/positions_in_other_order", integers, {n}});
    if (facts.is_weighted) arrays.push_back({vertices + "/weight_sums", {Hdf5Type::float64}, {n}});
    if (facts.num_clusters > 0) arrays.push_back({vertices + "/clusters", {Hdf5Type::int32}, {n}});
    if (facts.label_kind == LabelKind::single) arrays.push_back({"/labels/" + order, {Hdf5Type::int32}, {n}});
    if (facts.label_kind == LabelKind::multi)
      arrays.push_back({"/labels/" + order, {Hdf5Type::int8}, {facts.num_classes, n}});
    if (facts.label_kind == LabelKind::real)
      arrays.push_back({"/labels/" + order, {Hdf5Type::float64}, {facts.num_classes, n}});
    if (auto const count = facts.num_splits(); count > 0)
      arrays.push_back({"/split/" + order, {Hdf5Type::uint8}, count > 1 ? Extents{count, n} : Extents{n}});
  }
  if (facts.num_edge_features > 0)
    arrays.push_back({"/vertices/edge_feature_means", {Hdf5Type::float64}, {facts.num_edge_features, n}});
  if (facts.feature_kind == FeatureKind::dense)
    arrays.push_back({"/features/dense", {Hdf5Type::float32}, {facts.num_features, n}});
  if (facts.features_have_remainders)
    arrays.push_back({"/features/remainders", {Hdf5Type::float32}, {facts.num_features, n}});
  for (auto const part : {Split::valid, Split::test})
    for (auto const kind : {LinkKind::positive, LinkKind::negative})
      if (auto const count = facts.num_held_out[static_cast<std::size_t>(part)]; count > 0)
        arrays.push_back({links_array(part, kind), integers, {2, count}});
  auto const add_names = [&](std::string const& group, std::int64_t count, std::int64_t num_bytes) {
    arrays.push_back({group + "/offsets", {Hdf5Type::int64}, {count + 1}});
    arrays.push_back({group + "/text", {Hdf5Type::uint8}, {num_bytes}});
  };
  if (auto const count = facts.num_relations(); count > 0) {
    add_names("/relations/names", count, facts.relation_name_bytes);
    arrays.push_back({"/relations/num_entries", {Hdf5Type::int64}, {count}});
    for (auto const* const array : relation_ends_arrays)
      if (facts.num_types() > 0) arrays.push_back({array, {Hdf5Type::int64}, {count}});
  }
  if (facts.has_vertex_names()) add_names("/vertices/names", n, facts.vertex_name_bytes);
  if (facts.has_class_names()) add_names("/labels/names", facts.num_classes, facts.class_name_bytes);
  return arrays;
}

void check_array(StoreCatalogue const& catalogue, Expected const& expected, std::string const& file) {
  auto const found = catalogue.arrays.find(expected.name);
  if (found == catalogue.arrays.end()) throw_user("{} is damaged: it has no array {}", file, expected.name);
  auto const& array = found->second;
  if (array.extents != expected.extents)
    throw_user("{} is damaged: {} has the shape {}, but the facts imply {}", file, expected.name,
               fmt::join(array.extents, " x "), fmt::join(expected.extents, " x "));
  if (std::ranges::find(expected.types, array.type) == expected.types.end())
    throw_user("{} is damaged: {} holds elements of another type than it must", file, expected.name);
  auto bytes = static_cast<std::int64_t>(size_of(array.type));
  for (auto const extent : array.extents)
    bytes = runtime::checked_product(bytes, extent, file + ": the size of " + expected.name);
  if (array.offset_bytes < 0 || bytes > catalogue.file_bytes ||
      array.offset_bytes > catalogue.file_bytes - bytes)
    throw_user("{} is truncated or damaged: {} would end beyond the file's {} bytes", file, expected.name,
               catalogue.file_bytes);
}

/// Arrays of the entries of a matrix in tiles, which have no checksums of their own.
std::vector<Expected> entry_arrays(TiledGroup const& group) {
  auto const& name = group.group;
  auto const count = group.num_entries;
  std::vector<Expected> arrays{{name + "/entries", {Hdf5Type::uint32}, {count}}};
  if (group.has_values) arrays.push_back({name + "/values", {Hdf5Type::float32}, {count}});
  if (group.num_relations > 0) arrays.push_back({name + "/relations", {Hdf5Type::uint16}, {count}});
  if (group.num_edge_features > 0)
    arrays.push_back({name + "/features",
                      {Hdf5Type::float32},
                      {runtime::checked_product(count, group.num_edge_features, "features of entries")}});
  return arrays;
}

std::int64_t bytes_of(Expected const& array) {
  auto bytes = static_cast<std::int64_t>(size_of(array.types.front()));
  for (auto const extent : array.extents)
    bytes *= extent;
  return bytes;
}

void check_with_checksums(StoreCatalogue const& catalogue, Expected const& expected,
                          std::string const& file) {
  check_array(catalogue, expected, file);
  auto extents = expected.extents;
  extents.back() = num_checksums(extents.back());
  check_array(catalogue, {checksums_of(expected.name), {Hdf5Type::uint32}, extents}, file);
}

} // namespace

std::vector<TiledGroup> tiled_groups(StoreFacts const& facts) {
  auto const n = facts.num_vertices;
  std::vector<TiledGroup> groups;
  for (auto const* const group : {"/topology/even", "/topology/odd"})
    if (groups.empty() || facts.has_odd_topology())
      groups.push_back({group, n, n, facts.num_entries, facts.is_weighted, facts.num_relations(),
                        facts.num_edge_features});
  if (facts.feature_kind == FeatureKind::sparse)
    groups.push_back({"/features/sparse", n, facts.num_features, facts.num_feature_entries,
                      facts.features_have_values, 0});
  return groups;
}

std::vector<char const*> tables_of(TiledGroup const& group) {
  std::vector<char const*> tables{"/tile_row_offsets", "/tile_offsets", "/tile_checksums"};
  if (group.num_edge_features > 0) tables.push_back("/tile_feature_checksums");
  return tables;
}

std::string links_array(Split part, LinkKind kind) {
  return fmt::format("/links/{}/{}", name_of(part), kind == LinkKind::positive ? "positives" : "negatives");
}

std::vector<std::string> plain_array_names(StoreFacts const& facts) {
  std::vector<std::string> names;
  for (auto const& array : plain_arrays(facts))
    names.push_back(array.name);
  return names;
}

std::vector<std::string> array_names(StoreFacts const& facts) {
  std::vector<std::string> names;
  auto const add = [&](std::string const& name) {
    names.push_back(name);
    names.push_back(checksums_of(name));
  };
  for (auto const& name : plain_array_names(facts))
    add(name);
  for (auto const& group : tiled_groups(facts)) {
    for (auto const& array : entry_arrays(group))
      names.push_back(array.name);
    for (auto const* const table : tables_of(group))
      add(group.group + table);
  }
  return names;
}

std::int64_t bytes_of_arrays(StoreFacts const& facts) {
  std::int64_t bytes = 0;
  for (auto const& array : plain_arrays(facts))
    bytes += bytes_of(array);
  for (auto const& group : tiled_groups(facts)) {
    auto const grid = group.group == "/features/sparse"
                          ? tile_grid_of_features(group.num_rows, group.num_columns)
                          : tile_grid_of_topology(group.num_rows, group.num_entries);
    for (auto const& array : entry_arrays(group))
      bytes += bytes_of(array);
    bytes += table_bytes(grid);
  }
  return bytes;
}

TileGrid tile_grid_of(StoreCatalogue const& catalogue, TiledGroup const& group, std::string const& file) {
  auto const name = group.group + "/tile_checksums";
  auto const found = catalogue.arrays.find(name);
  if (found == catalogue.arrays.end()) throw_user("{} is damaged: it has no array {}", file, name);
  auto const& parts = found->second.extents;
  if (parts.size() != 2) throw_user("{} is damaged: {} must have two dimensions", file, name);
  auto const check = [&](std::int64_t count, std::int64_t num_parts) {
    std::int64_t product = 0; // Cut multiplies these numbers
    bool const fits = num_parts >= 1 && num_parts <= std::max<std::int64_t>(1, count) &&
                      (count + num_parts - 1) / num_parts <= max_tile_side &&
                      !__builtin_mul_overflow(count + 1, num_parts + 1, &product);
    if (!fits)
      throw_user("{} is damaged: {} cuts {} rows or columns in {} tiles", file, name, count, num_parts);
  };
  check(group.num_rows, parts[0]);
  check(group.num_columns, parts[1]);
  return {{group.num_rows, parts[0]}, {group.num_columns, parts[1]}};
}

void check_catalogue(StoreCatalogue const& catalogue, std::string const& file) {
  for (auto const& expected : plain_arrays(catalogue.facts))
    check_with_checksums(catalogue, expected, file);
  for (auto const& group : tiled_groups(catalogue.facts)) {
    auto const grid = tile_grid_of(catalogue, group, file);
    auto const rows = grid.rows.num_parts;
    auto const columns = grid.columns.num_parts;
    auto const& name = group.group;
    for (auto const& expected : entry_arrays(group))
      check_array(catalogue, expected, file);
    check_with_checksums(catalogue, {name + "/tile_row_offsets", {Hdf5Type::int64}, {rows + 1}}, file);
    check_with_checksums(catalogue, {name + "/tile_offsets", {Hdf5Type::uint32}, {rows, columns + 1}}, file);
    auto const tables = tables_of(group);
    for (auto const* const sums : std::span(tables).subspan(2))
      check_with_checksums(catalogue, {name + sums, {Hdf5Type::uint32}, {rows, columns}}, file);
  }
}

} // namespace orthant::graph
