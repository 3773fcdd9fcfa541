#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads the bytes of a store by array name. Only rank 0 opens the file with HDF5. It lists the arrays with their types, extents and places
// (the catalogue), checks them against the facts, and sends both to the other ranks, together with the tables of tiles if these are small.
// After that, each rank reads its data with plain reads, so that thousands of ranks do not request the same few kilobytes of metadata from
// the file system.

#include "graph/store/distribution.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// The data that a rank needs to read a store's file without HDF5.
struct StoreCatalogue {
  std::int64_t file_bytes = 0;
  StoreFacts facts;
  std::map<std::string, runtime::Hdf5Array> arrays; // by name

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static StoreCatalogue from_text(std::string const& text);
};

/// Tables of at most this many bytes in all are sent to all ranks; larger ones are read by rectangle.
inline constexpr std::int64_t most_table_bytes_held = std::int64_t{8} << 20;
/// Names of the tables, and of the arrays of relations and names of classes, that are sent: the smallest first, as long as they fit.
[[nodiscard]] std::vector<std::string> tables_to_hold(StoreCatalogue const& catalogue);

class StoreFile {
 public:
  /// Opens a file. Throws UserError on all ranks if there is no such file, or if it is not a store, has a newer version or is damaged.
  /// Collective.
  [[nodiscard]] static StoreFile open(runtime::Communicator const& comm, std::filesystem::path const& path);
  /// Opens a file in this process's memory. Not collective.
  [[nodiscard]] static StoreFile take(runtime::Hdf5File file);

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] StoreFacts const& facts() const { return catalogue_.facts; }
  [[nodiscard]] StoreCatalogue const& catalogue() const { return catalogue_; }
  [[nodiscard]] bool contains(std::string const& array) const { return catalogue_.arrays.contains(array); }
  /// Throws UserError if there is no such array.
  [[nodiscard]] runtime::Hdf5Array const& array(std::string const& name) const;
  /// True if this rank has held the array since the file was opened; rank 0 has compared it with its checksums.
  [[nodiscard]] bool holds(std::string const& array) const { return held_.contains(array); }

  /// Elements of one row of an array (row 0 if it has one dimension). T must be the array's type. Throws UserError if there are no such
  /// elements or they cannot be read.
  template<class T>
  [[nodiscard]] std::vector<T> read(std::string const& array, std::int64_t row, Range elements) const {
    std::vector<T> data(static_cast<std::size_t>(elements.size() > 0 ? elements.size() : 0));
    read_bytes(array, runtime::detail::hdf5_type_of<T>(), row, elements,
               std::as_writable_bytes(std::span(data)));
    return data;
  }

  /// Number of bytes that this rank has read from the file since it was opened.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  struct CloseDescriptor {
    void operator()(int descriptor) const noexcept;
  };
  using Bytes = std::vector<std::byte>;

  StoreFile(std::string name, StoreCatalogue catalogue)
      : name_(std::move(name)),
        catalogue_(std::move(catalogue)) {}
  void open_bytes();
  void hold_tables(runtime::Communicator const& comm);
  void read_facts_in_arrays(); // relations and names of classes
  void read_bytes(std::string const& name, runtime::Hdf5Type type, std::int64_t row, Range elements,
                  std::span<std::byte> out) const;
  void read_at(std::string const& array, std::int64_t offset, std::span<std::byte> out) const;

  std::string name_;
  StoreCatalogue catalogue_;
  runtime::UniqueHandle<int, -1, CloseDescriptor> descriptor_; // empty for a file in memory
  Bytes image_;                                                // content of a file in memory
  std::map<std::string, Bytes> held_;                          // whole arrays, by name
  mutable std::int64_t bytes_read_ = 0;
};

// The arrays that the facts of a store require, with types and extents. Opening a store compares them with the arrays of the file, so that
// no reader gets an array of another shape.

/// A matrix in tiles and its extents.
struct TiledGroup {
  std::string group;
  std::int64_t num_rows;
  std::int64_t num_columns;
  std::int64_t num_entries;
  bool has_values;
  std::int64_t num_relations;         // 0: entries have no relations
  std::int64_t num_edge_features = 0; // 0: entries have no features
};
[[nodiscard]] std::vector<TiledGroup> tiled_groups(StoreFacts const& facts);
/// The tables of its tiles, by the names in the group.
[[nodiscard]] std::vector<char const*> tables_of(TiledGroup const& group);

/// "p1" and, if the store has two orders, "p2".
[[nodiscard]] inline std::vector<std::string> order_names(StoreFacts const& facts) {
  return facts.has_two_orders() ? std::vector<std::string>{"p1", "p2"} : std::vector<std::string>{"p1"};
}

/// Names of the arrays with one value per vertex, or one row per class or feature: all arrays that are not tiled, without their checksums.
[[nodiscard]] std::vector<std::string> plain_array_names(StoreFacts const& facts);

/// The name of the array of links of a part: "/links/valid/positives".
[[nodiscard]] std::string links_array(Split part, LinkKind kind);

/// Names of all arrays of a store with these facts, including checksums.
[[nodiscard]] std::vector<std::string> array_names(StoreFacts const& facts);

/// Bytes of all arrays of a store with these facts and at most 2^31 vertices, without the checksums of plain arrays.
[[nodiscard]] std::int64_t bytes_of_arrays(StoreFacts const& facts);

/// The tiles of the matrix under `group`. Throws a UserError with `file` if the tables' extents do not match.
[[nodiscard]] TileGrid tile_grid_of(StoreCatalogue const& catalogue, TiledGroup const& group,
                                    std::string const& file);

/// Throws a UserError with `file` and the array if an array is missing, has another type or shape than the facts require, or extends beyond
/// the end of the file.
void check_catalogue(StoreCatalogue const& catalogue, std::string const& file);

} // namespace orthant::graph
