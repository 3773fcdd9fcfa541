#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of GAT and GATv2 as safetensors files with the names and shapes of torch_geometric.nn.GATConv and GATv2Conv with H heads of d
// columns. The last layer has the mean of its heads unless there is a head behind it:
//
//   GAT      layerL.weight          convs.L.lin.weight [H d, i]
//            layerL.attention       convs.L.att_dst and att_src [1, H, d]
//   GATv2    layerL.weight          convs.L.lin_l.weight and lin_r.weight [H d, i]; their biases are 0
//            layerL.attention       convs.L.att [1, H, d]
//   both     layerL.bias            convs.L.bias
//            layerL.edge_weight     convs.L.lin_edge.weight [H d, features of an edge]; GAT: layerL.edge_attention  convs.L.att_edge [1, H, d]
//
// Norms, residuals, lin_in and lin_out have the names of state_dict.hpp.
//
// Weights of R-GAT, with a GATConv for each relation R of a layer L, in the order of the store's relations, and a torch.nn.Linear behind the
// layers:
//
//   layerL.weight         convs.L.convs.R.lin.weight [H d, i]; with weights of targets lin_src.weight
//   layerL.target_weight  convs.L.convs.R.lin_dst.weight [H d, i]
//   layerL.attention      convs.L.convs.R.att_dst and att_src [1, H, d]
//   layerL.biases         convs.L.convs.R.bias [H d]
//   head.weight           lin.weight [classes, H d]
//   head.bias             lin.bias [classes]
//   features              features

#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/safetensors.hpp"

#include <filesystem>

namespace orthant::models {

/// Whether the file has weights of GAT, GATv2 or R-GAT.
[[nodiscard]] bool has_attention_weights(runtime::SafetensorsFile const& file);
/// Writes a weights file. Rank 0 does the work. Collective over `comm`. Throws UserError on all ranks, which names the tensor, if one is
/// unknown, is missing, or does not fit the others.
void import_attention_weights(runtime::Communicator const& comm, runtime::SafetensorsFile const& file,
                              std::filesystem::path const& path, std::filesystem::path const& output);
/// Writes the weights of GAT, GATv2 or R-GAT in `file`, with its attributes as metadata. Not collective. Throws UserError if there are
/// others, or of attention by dot products.
void export_attention_weights(runtime::Hdf5File const& file, std::filesystem::path const& path,
                              runtime::TensorMetadata const& metadata, std::filesystem::path const& output);

} // namespace orthant::models
