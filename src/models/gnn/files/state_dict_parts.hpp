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

// Conversion between a weights file and a safetensors file by a list of places: each tensor is a part of an array of the weights file, as it
// is or transposed. State dicts of attention are written and read so, because one array holds several tensors of a layer.

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

// Weights of R-GCN as safetensors files with the names and shapes of torch_geometric.nn.RGCNConv:
//
//   layerL.weight        convs.L.weight   [R, i, o]; with bases [B, i, o]; with blocks [R, K, i / K, o / K]
//   layerL.comp          convs.L.comp     [R, B]
//   layerL.self_weight   convs.L.root     [i, o]
//   layerL.bias          convs.L.bias     [o]
//
// import also reads layerL in place of convs.L. Each array has the same numbers in the same order in both files.

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
