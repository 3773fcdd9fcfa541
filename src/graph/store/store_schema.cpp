// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_schema.hpp"

#include "graph/store/store_writer.hpp"
#include "graph/store/vertex_owners.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <initializer_list>

namespace orthant::graph {

using runtime::Hdf5Type;
using runtime::throw_user;
using Extents = runtime::Hdf5File::Extents;

namespace {

struct Expected {
  std::string name;
  std::vector<Hdf5Type> types; // one of them
  Extents extents;
};

/// Arrays that come with checksums, but for the tables of tiles.
std::vector<Expected> plain_arrays(StoreFacts const& facts) {
  std::vector<Hdf5Type> const integers{Hdf5Type::int32, Hdf5Type::int64}; // whichever holds all values
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
    if (facts.has_split) arrays.push_back({"/split/" + order, {Hdf5Type::uint8}, {n}});
  }
  if (facts.feature_kind == FeatureKind::dense)
    arrays.push_back({"/features/dense", {Hdf5Type::float32}, {facts.num_features, n}});
  for (auto const part : {Split::valid, Split::test})
    for (auto const kind : {LinkKind::positive, LinkKind::negative})
      if (auto const count = facts.num_held_out[static_cast<std::size_t>(part)]; count > 0)
        arrays.push_back({links_array(part, kind), integers, {2, count}});
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
  groups.push_back({"/topology/even", n, n, facts.num_entries, facts.is_weighted});
  if (facts.has_odd_topology())
    groups.push_back({"/topology/odd", n, n, facts.num_entries, facts.is_weighted});
  if (facts.feature_kind == FeatureKind::sparse)
    groups.push_back(
        {"/features/sparse", n, facts.num_features, facts.num_feature_entries, facts.features_have_values});
  return groups;
}

std::string links_array(Split part, LinkKind kind) {
  return fmt::format("/links/{}/{}", name_of(part), kind == LinkKind::positive ? "positives" : "negatives");
}

std::vector<std::string> order_names(StoreFacts const& facts) {
  return facts.has_two_orders() ? std::vector<std::string>{"p1", "p2"} : std::vector<std::string>{"p1"};
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
  for (auto const& [group, num_rows, num_columns, num_entries, has_values] : tiled_groups(facts)) {
    names.push_back(group + "/entries");
    if (has_values) names.push_back(group + "/values");
    for (auto const* const table : {"/tile_row_offsets", "/tile_offsets", "/tile_checksums"})
      add(group + table);
  }
  return names;
}

std::int64_t bytes_of_arrays(StoreFacts const& facts) {
  std::int64_t bytes = 0;
  for (auto const& array : plain_arrays(facts)) {
    auto size = static_cast<std::int64_t>(size_of(array.types.front()));
    for (auto const extent : array.extents)
      size *= extent;
    bytes += size;
  }
  constexpr std::int64_t entry_bytes = 4, value_bytes = 4;
  for (auto const& group : tiled_groups(facts)) {
    auto const grid = group.group == "/features/sparse"
                          ? tile_grid_of_features(group.num_rows, group.num_columns)
                          : tile_grid_of_topology(group.num_rows, group.num_entries);
    bytes += group.num_entries * (entry_bytes + (group.has_values ? value_bytes : 0)) + table_bytes(grid);
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
    std::int64_t product = 0; // Cut multiplies them
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
    check_array(catalogue, {name + "/entries", {Hdf5Type::uint32}, {group.num_entries}}, file);
    if (group.has_values)
      check_array(catalogue, {name + "/values", {Hdf5Type::float32}, {group.num_entries}}, file);
    check_with_checksums(catalogue, {name + "/tile_row_offsets", {Hdf5Type::int64}, {rows + 1}}, file);
    check_with_checksums(catalogue, {name + "/tile_offsets", {Hdf5Type::uint32}, {rows, columns + 1}}, file);
    check_with_checksums(catalogue, {name + "/tile_checksums", {Hdf5Type::uint32}, {rows, columns}}, file);
  }
}

} // namespace orthant::graph
