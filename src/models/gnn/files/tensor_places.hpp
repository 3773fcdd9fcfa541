#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Conversion between a weights file and a safetensors file by a list of places: each tensor is a part of an array of the weights file, as it
// is or transposed. State dicts of attention are written and read so, because one array holds several tensors of a layer.

#include "models/parameters/weights_file.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

using TensorShape = std::vector<std::int64_t>;

/// Where the numbers of a tensor lie. The last dimension of `shape` are columns of the array, or rows if `is_transposed`.
struct TensorPlace {
  std::string tensor;
  TensorShape shape;
  std::string array; // of the weights file; empty: a tensor of zeros, which is in no array
  TensorShape extents{};
  std::int64_t first_row = 0, first_column = 0;
  bool is_transposed = false;
};

/// Shapes of the tensors of a file by name.
class TensorShapes {
 public:
  TensorShapes(runtime::SafetensorsFile const& file, std::string path);

  [[nodiscard]] bool has(std::string const& name) const { return shapes_.contains(name); }
  /// Throws UserError if the tensor is missing, has another number of dimensions or is empty.
  [[nodiscard]] TensorShape const& of(std::string const& name, std::size_t num_dimensions) const;
  /// Throws UserError, which names the tensor, if one is missing, has another shape than its place, or has no place. `of_what`: "R-GAT".
  void require_fit(std::vector<TensorPlace> const& places, std::string_view of_what) const;
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  std::string path_;
  std::map<std::string, TensorShape> shapes_;
};

/// Writes the arrays as a weights file, in double if a tensor is, else in single precision. Rank 0 does the work. Collective over `comm`.
/// Throws UserError on all ranks if the tensor of a place without an array is not 0.
void import_places(runtime::Communicator const& comm, runtime::SafetensorsFile const& file,
                   std::filesystem::path const& path, std::vector<TensorPlace> const& places,
                   Architecture const& architecture, std::filesystem::path const& output);

/// Writes the tensors in the precision of the first array. Not collective. Throws UserError, which names the array, if one is missing, has
/// other extents than its places, or has no place. `of_what`: who has no such array, "GATConv".
void export_places(runtime::Hdf5File const& file, std::filesystem::path const& path,
                   std::vector<TensorPlace> const& places, std::string_view of_what,
                   runtime::TensorMetadata const& metadata, std::filesystem::path const& output);

} // namespace orthant::models
