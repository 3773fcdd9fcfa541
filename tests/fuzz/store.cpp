// SPDX-License-Identifier: Apache-2.0
//
// A graph store whose facts and tables lie, with every checksum right: a small store is copied in memory with
// edits from the input (hdf5_arrays.hpp), opened, verified and read in full.

#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_arrays.hpp"
#include "graph/crc32.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <vector>

namespace {

using namespace orthant;
using runtime::Hdf5File;

using Array = fuzz::Hdf5Content;
using Arrays = fuzz::Hdf5Arrays;

/// The small store that edits start from: a directed graph with features, labels, a split and clusters in two
/// orders.
fuzz::EditedArrays make_small_store() {
  auto const& comm = fuzz::single_rank();
  graph::PartitionOptions options;
  auto const source = graph::open_dataset(comm, "rmat:vertices=40,edges=160,features=3,classes=4,directed=1");
  auto const path = std::filesystem::temp_directory_path() / fmt::format("orthant-fuzz-{}.h5", ::getpid());
  options.replaces_output = true;
  options.num_clusters = 5;
  graph::partition(comm, *source, path, options);
  auto const file = Hdf5File::open(path);
  fuzz::EditedArrays store{file.read_text("/", "facts"), fuzz::read_arrays(file)};
  std::filesystem::remove(path);
  return store;
}

/// The checksums of chunks of every array that has them.
void mend_checksums(Arrays& arrays) {
  for (auto& [name, sums] : arrays) {
    if (!name.starts_with("/checksums/")) continue;
    auto const array = arrays.find(name.substr(std::string_view("/checksums").size()));
    if (array == arrays.end()) continue;
    auto const& [type, extents, bytes] = array->second;
    auto const length = extents.back();
    auto const row_bytes = static_cast<std::size_t>(length) * size_of(type);
    auto const chunk_bytes = static_cast<std::size_t>(graph::elements_per_checksum) * size_of(type);
    std::vector<std::uint32_t> crcs;
    for (std::size_t row = 0; row_bytes > 0 && row < bytes.size() / row_bytes; ++row)
      for (std::size_t at = 0; at < row_bytes; at += chunk_bytes)
        crcs.push_back(graph::crc32_of(
            std::span(bytes).subspan(row * row_bytes + at, std::min(chunk_bytes, row_bytes - at))));
    sums.extents = extents;
    sums.extents.back() = graph::num_checksums(length);
    fuzz::resize(sums);
    auto const num_bytes = std::min(sums.bytes.size(), crcs.size() * sizeof(std::uint32_t));
    if (num_bytes > 0) std::memcpy(sums.bytes.data(), crcs.data(), num_bytes);
  }
}

template<class T>
T element_of(Array const& array, std::int64_t i) {
  T value{};
  auto const place = static_cast<std::size_t>(i) * sizeof value;
  if (i >= 0 && place + sizeof value <= array.bytes.size())
    std::memcpy(&value, array.bytes.data() + place, sizeof value);
  return value;
}

/// The checksums of the tiles that the tables name, as far as these lie inside the entries.
void mend_tile_checksums(Arrays& arrays, std::string const& group) {
  auto& sums = arrays.at(group + "/tile_checksums");
  auto const& entries = arrays.at(group + "/entries").bytes;
  auto const values = arrays.find(group + "/values");
  auto const& row_offsets = arrays.at(group + "/tile_row_offsets");
  auto const& offsets = arrays.at(group + "/tile_offsets");
  if (sums.extents.size() != 2 || offsets.extents.size() != 2) return;
  constexpr std::int64_t entry_bytes = 4;
  auto const crc_of = [&](std::vector<std::byte> const& bytes, std::int64_t begin, std::int64_t end,
                          std::uint32_t crc) {
    auto const most = static_cast<std::int64_t>(bytes.size()) / entry_bytes;
    if (begin < 0 || end < begin || end > most) return crc;
    return graph::crc32_of(std::span(bytes).subspan(static_cast<std::size_t>(begin * entry_bytes),
                                                    static_cast<std::size_t>((end - begin) * entry_bytes)),
                           crc);
  };
  for (std::int64_t i = 0; i < sums.extents[0]; ++i)
    for (std::int64_t j = 0; j < sums.extents[1]; ++j) {
      auto const row = element_of<std::int64_t>(row_offsets, i);
      if (row < 0 || row > std::int64_t{1} << 32) return;
      auto const at = i * offsets.extents[1] + j;
      auto const begin = row + element_of<std::uint32_t>(offsets, at);
      auto const end = row + element_of<std::uint32_t>(offsets, at + 1);
      auto crc = crc_of(entries, begin, end, 0);
      if (values != arrays.end()) crc = crc_of(values->second.bytes, begin, end, crc);
      auto const place = static_cast<std::size_t>(i * sums.extents[1] + j) * sizeof crc;
      if (place + sizeof crc <= sums.bytes.size()) std::memcpy(sums.bytes.data() + place, &crc, sizeof crc);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static auto const small = make_small_store();
  auto [facts, arrays] = fuzz::edited(small, std::span(data, size));
  for (auto const* const group : {"/topology/even", "/topology/odd"})
    if (arrays.contains(std::string(group) + "/entries")) mend_tile_checksums(arrays, group);
  mend_checksums(arrays);

  auto file = Hdf5File::create_in_memory("edited");
  fuzz::write_arrays(file, arrays);
  file.write_attribute("/", "format", std::string("orthant graph store"));
  file.write_attribute("/", "version", graph::store_version);
  file.write_attribute("/", "facts", facts);
  file.write_attribute("/", "facts_crc32",
                       static_cast<std::int64_t>(graph::crc32_of(std::as_bytes(std::span(facts)))));

  return fuzz::accept_or_refuse([&] {
    using graph::Order;
    using graph::Parity;
    auto const store = graph::GraphStore::from_file(std::move(file));
    auto const& found = store.facts();
    auto const rows = runtime::Range{0, found.num_vertices};
    fuzz::accept_or_refuse([&] { store.verify(fuzz::single_rank()); });
    for (auto const parity : {Parity::even, Parity::odd})
      fuzz::accept_or_refuse([&] {
        auto const block = store.read_block(parity, rows, rows);
        for (auto const column : block.columns)
          if (column < 0 || column >= found.num_vertices) __builtin_trap();
        static_cast<void>(store.read_block(parity, rows, rows, graph::SelfLoops::added));
        static_cast<void>(store.read_scales(parity, rows, rows));
      });
    for (auto const order : {Order::p1, Order::p2}) {
      fuzz::accept_or_refuse([&] {
        for (auto const id : store.read_original_ids(order, rows))
          if (!rows.contains(id)) __builtin_trap();
      });
      fuzz::accept_or_refuse([&] {
        if (found.feature_kind == graph::FeatureKind::dense)
          static_cast<void>(store.read_features(order, rows, {0, found.num_features}));
      });
      fuzz::accept_or_refuse([&] {
        if (found.label_kind != graph::LabelKind::single) return;
        for (auto const label : store.read_labels(order, rows))
          if (label < -1 || label >= found.num_classes) __builtin_trap();
      });
      fuzz::accept_or_refuse([&] { static_cast<void>(store.read_mask(graph::Split::train, order, rows)); });
      fuzz::accept_or_refuse([&] {
        if (found.num_clusters == 0) return;
        for (auto const cluster : store.read_clusters(order, rows))
          if (cluster < 0 || cluster >= found.num_clusters) __builtin_trap();
      });
    }
  });
}
