#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights files to PyTorch and back: a safetensors file with the names and shapes that the state dict of
// torch_geometric.nn.GCN has, so that load_state_dict takes it. Its linear layers hold [outputs x inputs], ours
// [inputs x outputs].
//
//   layerL.weight [i x o]   convs.L.lin.weight [o x i]      input.weight   lin_in.weight
//   layerL.bias             convs.L.bias                    input.bias     lin_in.bias
//   layerL.norm             norms.L.weight                  head.weight    lin_out.weight
//                                                           head.bias      lin_out.bias
//
// LayerNorm has layerL.norm_shift as norms.L.bias, too; of BatchNorm norms.L.module has weight, bias, running_mean and running_var
// (layerL.norm, norm_shift, norm_mean and norm_variance).
//
// of GraphSAGE convs.L.lin_l.weight and .bias, and layerL.self_weight is convs.L.lin_r.weight; of GIN convs.L.nn.lins.0 and .1
// for layerL and layerL.second, and layerL.epsilon is convs.L.eps. The head is then the last convs.L.nn.lins.1.

#include "models/gnn/plan/gnn_model.hpp"
#include "models/layers/centered_norm.hpp"
#include "runtime/comm/communicator.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace orthant::models {

/// "layer0.weight" -> "convs.0.lin.weight" of a GCN; none for a name that is no parameter of the model. `num_layers`:
/// the head of GIN is the second part of its last perceptron.
[[nodiscard]] std::optional<std::string> torch_name_of(std::string const& parameter, Model model,
                                                       std::int64_t num_layers, Norm norm);
/// "convs.0.lin.weight" -> "layer0.weight"; none for another name.
[[nodiscard]] std::optional<std::string> parameter_of_torch(std::string const& name);

/// Writes the parameters of a weights file, in their precision, and its architecture as metadata. Rank 0 does
/// the work. Collective. Throws UserError on all ranks if `weights` is no weights file, has trained features
/// (whose rows are in the order of a store), or `output` cannot be written.
void export_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                    std::filesystem::path const& output);

/// Writes a weights file from such a file; 16-bit numbers become float32. Residuals and the scaling of features,
/// which the tensors do not show, are taken from the metadata if it has them. Rank 0 does the work. Collective.
/// Throws UserError on all ranks, naming the tensor, if one is unknown, missing, or does not fit the others.
void import_weights(runtime::Communicator const& comm, std::filesystem::path const& tensors,
                    std::filesystem::path const& output);

} // namespace orthant::models
