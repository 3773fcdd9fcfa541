#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights in an HDF5 file that PyTorch (h5py) reads and writes too:
//
//   /parameters/layer0.weight [in x out], layer0.bias [out], layer1.weight, ..     float32 or float64
//   where the model has them: layerN.norm [out], input.weight, input.bias, head.weight, head.bias
//   attributes of "/": the architecture (model, layers, norm, residual, input_projection, head, bias,
//   trained_features) and feature_norm, which files from elsewhere may lack
//
// Every rank reads and writes just its piece.

#include "models/plan/gcn_parameters.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

/// Writes the parameters to a file that gets its name when it is complete and on the disk. Collective over
/// the grid's world. Throws UserError on all ranks if it cannot be written; an older file is then as it was.
template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, GcnSettings const& settings);

/// What a model is made of beside the shapes of its parameters: {"norm", "rms"}, ..
using Architecture = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Architecture architecture_of(GcnSettings const& settings);

/// Throws UserError, naming the part, if the file records another architecture; parts that it does not record
/// fit. Collective over `comm`.
void require_architecture(runtime::Communicator const& comm, std::filesystem::path const& path,
                          Architecture const& architecture);

/// Parameters := those of the file. Collective over the grid's world. Throws UserError, naming the parameter
/// and both shapes, if one is missing or has another shape.
template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters);

/// The architecture that a weights file holds.
struct WeightsFacts {
  std::vector<std::int64_t> widths; // [layers + 1] of layer 0's input, and of the layers' outputs
  std::optional<std::int64_t> projected_features; // where there is an input projection
  std::optional<std::int64_t> head_classes;       // where there is a head
  bool has_bias = false;
  bool has_residuals = false;
  bool has_features = false; // trained ones, in the order of rows of the store that they were trained on
  Norm norm = Norm::none;
  std::optional<FeatureNorm> feature_norm;

  [[nodiscard]] std::int64_t num_features() const { return projected_features.value_or(widths.front()); }
  [[nodiscard]] std::int64_t num_classes() const { return head_classes.value_or(widths.back()); }
};

/// The model of such a file, without dropout.
[[nodiscard]] GcnSettings settings_of(WeightsFacts const& facts);

/// Collective over `comm`. Throws UserError where the file is no weights file.
[[nodiscard]] WeightsFacts read_weights_facts(runtime::Communicator const& comm,
                                              std::filesystem::path const& path);

} // namespace orthant::models
