#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of R-GCN as safetensors files with the names and shapes of torch_geometric.nn.RGCNConv:
//
//   layerL.weight        convs.L.weight   [R, i, o]; with bases [B, i, o]; with blocks [R, K, i / K, o / K]
//   layerL.comp          convs.L.comp     [R, B]
//   layerL.self_weight   convs.L.root     [i, o]
//   layerL.bias          convs.L.bias     [o]
//
// import also reads layerL in place of convs.L. Each array has the same numbers in the same order in both files.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/safetensors.hpp"

#include <filesystem>

namespace orthant::models {

/// Whether the file has weights of R-GCN.
[[nodiscard]] bool has_relation_weights(runtime::SafetensorsFile const& file);
/// Writes a weights file. Rank 0 does the work. Collective over `comm`. Throws UserError on all ranks, which names the tensor, if one is
/// unknown, is missing, or does not fit the others.
void import_relation_weights(runtime::Communicator const& comm, runtime::SafetensorsFile const& file,
                             std::filesystem::path const& path, std::filesystem::path const& output);
/// Writes the weights of R-GCN in `file`, with its attributes as metadata. Not collective.
void export_relation_weights(runtime::Hdf5File const& file, std::filesystem::path const& path,
                             runtime::TensorMetadata const& metadata, std::filesystem::path const& output);

} // namespace orthant::models
