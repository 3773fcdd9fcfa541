// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_file.hpp"

#include "graph/crc32.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_arrays.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

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
  auto const num_relations = facts.num_relations();
  groups.push_back({"/topology/even", n, n, facts.num_entries, facts.is_weighted, num_relations});
  if (facts.has_odd_topology())
    groups.push_back({"/topology/odd", n, n, facts.num_entries, facts.is_weighted, num_relations});
  if (facts.feature_kind == FeatureKind::sparse)
    groups.push_back({"/features/sparse", n, facts.num_features, facts.num_feature_entries,
                      facts.features_have_values, 0});
  return groups;
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
    names.push_back(group.group + "/entries");
    if (group.has_values) names.push_back(group.group + "/values");
    if (group.num_relations > 0) names.push_back(group.group + "/relations");
    for (auto const* const table : {"/tile_row_offsets", "/tile_offsets", "/tile_checksums"})
      add(group.group + table);
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
  constexpr std::int64_t entry_bytes = 4, value_bytes = 4, relation_bytes = 2;
  for (auto const& group : tiled_groups(facts)) {
    auto const grid = group.group == "/features/sparse"
                          ? tile_grid_of_features(group.num_rows, group.num_columns)
                          : tile_grid_of_topology(group.num_rows, group.num_entries);
    auto const bytes_per_entry =
        entry_bytes + (group.has_values ? value_bytes : 0) + (group.num_relations > 0 ? relation_bytes : 0);
    bytes += group.num_entries * bytes_per_entry + table_bytes(grid);
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
    check_array(catalogue, {name + "/entries", {Hdf5Type::uint32}, {group.num_entries}}, file);
    if (group.has_values)
      check_array(catalogue, {name + "/values", {Hdf5Type::float32}, {group.num_entries}}, file);
    if (group.num_relations > 0)
      check_array(catalogue, {name + "/relations", {Hdf5Type::uint16}, {group.num_entries}}, file);
    check_with_checksums(catalogue, {name + "/tile_row_offsets", {Hdf5Type::int64}, {rows + 1}}, file);
    check_with_checksums(catalogue, {name + "/tile_offsets", {Hdf5Type::uint32}, {rows, columns + 1}}, file);
    check_with_checksums(catalogue, {name + "/tile_checksums", {Hdf5Type::uint32}, {rows, columns}}, file);
  }
}

using runtime::Hdf5Array;
using runtime::Hdf5File;
using runtime::index;
using runtime::together;

namespace {

/// Reads the attributes that identify a store, and its facts.
StoreFacts read_facts(Hdf5File const& file) {
  if (!file.contains_attribute("/", "format") || file.read_text("/", "format") != "orthant graph store")
    throw_user("{} is an HDF5 file, but no graph store; orthant partition makes one", file.name());
  if (auto const version = file.read_integer("/", "version"); version < 1 || version > store_version)
    throw_user("{} is a graph store of version {}; this program reads versions 1 to {}{}", file.name(),
               version, store_version, version > store_version ? ": use a newer orthant" : "");
  auto const text = file.read_text("/", "facts");
  if (file.read_integer("/", "facts_crc32") != crc32_of(std::as_bytes(std::span(text))))
    throw_user("{} is damaged: wrong checksum of its facts; partition the graph again", file.name());
  return StoreFacts::from_json(text, file.name());
}

StoreCatalogue catalogue_of(Hdf5File const& file, std::int64_t file_bytes) {
  StoreCatalogue catalogue;
  catalogue.file_bytes = file_bytes;
  catalogue.facts = read_facts(file);
  for (auto const& name : array_names(catalogue.facts)) {
    if (!file.contains(name)) throw_user("{} is damaged: it has no array {}", file.name(), name);
    catalogue.arrays.emplace(name, file.describe(name));
  }
  check_catalogue(catalogue, file.name());
  return catalogue;
}

std::int64_t num_elements(Hdf5Array const& array) {
  std::int64_t count = 1;
  for (auto const extent : array.extents)
    count *= extent;
  return count;
}

std::int64_t num_bytes(Hdf5Array const& array) {
  return num_elements(array) * static_cast<std::int64_t>(size_of(array.type));
}

} // namespace

std::vector<std::string> tables_to_hold(StoreCatalogue const& catalogue) {
  std::vector<std::pair<std::int64_t, std::string>> tables;
  for (auto const& [name, array] : catalogue.arrays)
    if (name.starts_with("/relations/") || name.starts_with("/labels/names/") ||
        (!name.starts_with("/checksums/") && name.find("/tile_") != std::string::npos))
      tables.emplace_back(num_bytes(array), name);
  std::ranges::sort(tables);
  std::vector<std::string> names;
  std::int64_t total = 0;
  for (auto const& [bytes, name] : tables)
    if ((total += bytes) <= most_table_bytes_held) names.push_back(name);
  return names;
}

std::string StoreCatalogue::to_text() const {
  nlohmann::json json;
  json["file_bytes"] = file_bytes;
  json["facts"] = facts.to_json();
  for (auto const& [name, array] : arrays)
    json["arrays"].push_back({name, static_cast<int>(array.type), array.extents, array.offset_bytes});
  return json.dump();
}

StoreCatalogue StoreCatalogue::from_text(std::string const& text) {
  auto const json = nlohmann::json::parse(text);
  StoreCatalogue catalogue;
  catalogue.file_bytes = json.at("file_bytes");
  catalogue.facts = StoreFacts::from_json(json.at("facts"), "the store");
  for (auto const& each : json.at("arrays")) {
    Hdf5Array array{each.at(0), static_cast<Hdf5Type>(each.at(1).get<int>()), each.at(2), each.at(3)};
    catalogue.arrays.emplace(array.name, array);
  }
  return catalogue;
}

void StoreFile::CloseDescriptor::operator()(int descriptor) const noexcept {
  ::close(descriptor);
}

StoreFile StoreFile::open(runtime::Communicator const& comm, std::filesystem::path const& path) {
  auto text = together(comm, [&]() -> std::string {
    if (!comm.is_root()) return {};
    auto const file = Hdf5File::open(path);
    return catalogue_of(file, static_cast<std::int64_t>(std::filesystem::file_size(path))).to_text();
  });
  broadcast_text(comm, text, 0);
  auto file = together(comm, [&] {
    StoreFile opened(path.string(), StoreCatalogue::from_text(text));
    opened.open_bytes();
    return opened;
  });
  file.hold_tables(comm);
  together(comm, [&] { file.read_facts_in_arrays(); });
  return file;
}

StoreFile StoreFile::take(Hdf5File file) {
  auto image = file.image();
  StoreFile taken(file.name(), catalogue_of(file, static_cast<std::int64_t>(image.size())));
  taken.image_ = std::move(image);
  taken.read_facts_in_arrays();
  return taken;
}

void StoreFile::read_facts_in_arrays() {
  auto& facts = catalogue_.facts;
  if (facts.has_class_names()) facts.class_names = read_names(*this, "/labels/names", {0, facts.num_classes});
  auto const count = facts.num_relations();
  if (count == 0) return;
  facts.relations = read_names(*this, "/relations/names", {0, count});
  facts.relation_entries = read_integers(*this, "/relations/num_entries", {0, count}, 0, facts.num_entries);
  if (facts.num_types() == 0) return;
  auto const last = facts.num_types() - 1;
  auto const targets = read_integers(*this, relation_ends_arrays[1], {0, count}, 0, last);
  for (auto const source : read_integers(*this, relation_ends_arrays[0], {0, count}, 0, last))
    facts.relation_ends.push_back({source, targets[facts.relation_ends.size()]});
}

void StoreFile::open_bytes() {
  descriptor_ = decltype(descriptor_)(
      runtime::repeated([&] { return ::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!descriptor_.owns()) throw_user("cannot open {}: {}", name_, std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0 || status.st_size != catalogue_.file_bytes)
    throw_user("{} has {} bytes here and {} on rank 0; all ranks must see the same file", name_,
               status.st_size, catalogue_.file_bytes);
}

void StoreFile::hold_tables(runtime::Communicator const& comm) {
  for (auto const& table : tables_to_hold(catalogue_)) {
    auto text = together(comm, [&]() -> std::string {
      if (!comm.is_root()) return {};
      check_whole_array(*this, table);
      std::string bytes(index(num_bytes(array(table))), '\0');
      read_at(table, array(table).offset_bytes, std::as_writable_bytes(std::span(bytes)));
      return bytes;
    });
    broadcast_text(comm, text, 0);
    auto const bytes = std::as_bytes(std::span(text));
    held_.emplace(table, Bytes(bytes.begin(), bytes.end()));
  }
  bytes_read_ = 0;
}

Hdf5Array const& StoreFile::array(std::string const& name) const {
  auto const found = catalogue_.arrays.find(name);
  if (found == catalogue_.arrays.end()) throw_user("{} is damaged: it has no array {}", name_, name);
  return found->second;
}

void StoreFile::read_bytes(std::string const& name, Hdf5Type type, std::int64_t row, Range elements,
                           std::span<std::byte> out) const {
  auto const& found = array(name);
  ORTHANT_REQUIRE(found.type == type, name, " in ", name_, " is of another type");
  auto const length = found.extents.back();
  auto const num_rows = found.extents.size() == 2 ? found.extents.front() : 1;
  bool const is_inside = 0 <= elements.begin && elements.begin <= elements.end && elements.end <= length &&
                         0 <= row && row < num_rows;
  if (!is_inside)
    throw_user("{} is damaged: elements [{}, {}) of row {} of {} were expected; its shape is {}", name_,
               elements.begin, elements.end, row, name, fmt::join(found.extents, " x "));
  if (out.empty()) return;
  auto const begin = (row * length + elements.begin) * static_cast<std::int64_t>(size_of(type));
  if (auto const held = held_.find(name); held != held_.end())
    std::memcpy(out.data(), held->second.data() + begin, out.size());
  else
    read_at(name, found.offset_bytes + begin, out);
}

void StoreFile::read_at(std::string const& array, std::int64_t offset, std::span<std::byte> out) const {
  if (!descriptor_.owns()) {
    std::memcpy(out.data(), image_.data() + offset, out.size());
  } else {
    constexpr std::size_t most_at_once = std::size_t{1} << 30; // a read on Linux returns at most 2 GiB
    for (std::size_t done = 0; done < out.size();) {
      auto const got = runtime::repeated([&] {
        return ::pread(descriptor_.get(), out.data() + done, std::min(out.size() - done, most_at_once),
                       static_cast<off_t>(offset) + static_cast<off_t>(done));
      });
      if (got < 0) throw_user("cannot read {} of {}: {}", array, name_, std::strerror(errno));
      if (got == 0) throw_user("{} is damaged: it ends within {}", name_, array);
      done += static_cast<std::size_t>(got);
    }
  }
  bytes_read_ += static_cast<std::int64_t>(out.size());
}

} // namespace orthant::graph
