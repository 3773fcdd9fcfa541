// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_file.hpp"

#include "graph/crc32.hpp"
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
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace orthant::graph {

using runtime::Hdf5Type;
using runtime::throw_user;
using Extents = runtime::Hdf5File::Extents;

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
