#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights in an HDF5 file that PyTorch (h5py) reads and writes too:
//
//   /parameters/layer0.weight [in x out], layer0.bias [out], layer1.weight, ..     float32 or float64
//   attributes of "/": model, feature_norm (absent in files from elsewhere)
//
// Every rank reads and writes just its piece.

#include "models/gcn.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace orthant::models {

/// Writes the parameters under a temporary name and renames, so a reader never sees half a file. Collective
/// over the grid's world. Throws UserError where the file cannot be written.
template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, FeatureNorm feature_norm);

/// Parameters := those of the file. Collective over the grid's world. Throws UserError, naming the parameter
/// and both shapes, where one is missing or has another shape.
template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters);

/// The architecture that a weights file holds.
struct WeightsFacts {
  std::vector<std::int64_t> widths; // [layers + 1]
  bool has_bias = false;
  std::optional<FeatureNorm> feature_norm;
};

/// Collective over `comm`. Throws UserError where the file is no weights file.
[[nodiscard]] WeightsFacts read_weights_facts(runtime::Communicator const& comm,
                                              std::filesystem::path const& path);

} // namespace orthant::models
