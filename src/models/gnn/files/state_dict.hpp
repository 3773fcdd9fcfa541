#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Conversion of weights files to and from PyTorch: a safetensors file with the names and shapes of the state dict of
// torch_geometric.nn.GCN, so load_state_dict accepts it. Its linear layers are [outputs x inputs], ours are [inputs x outputs].
//
//   layerL.weight [i x o]   convs.L.lin.weight [o x i]      input.weight   lin_in.weight
//   layerL.bias             convs.L.bias                    input.bias     lin_in.bias
//   layerL.norm             norms.L.weight                  head.weight    lin_out.weight
//                                                           head.bias      lin_out.bias
//
// LayerNorm also has layerL.norm_shift as norms.L.bias. BatchNorm has weight, bias, running_mean and running_var of norms.L.module
// for layerL.norm, norm_shift, norm_mean and norm_variance.
//
// GraphSAGE has convs.L.lin_l.weight and .bias, and layerL.self_weight is convs.L.lin_r.weight. GIN has convs.L.nn.lins.0 and .1
// for layerL and layerL.second, and layerL.epsilon is convs.L.eps; its head is the last convs.L.nn.lins.1.

#include "models/gnn/plan/gnn_model.hpp"
#include "models/layers/hidden_norm.hpp"
#include "runtime/comm/communicator.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace orthant::models {

/// PyTorch's name of a parameter: "layer0.weight" -> "convs.0.lin.weight" for a GCN; nullopt if the model has no such parameter.
/// `num_layers` is needed for GIN, whose head is the second part of its last perceptron.
[[nodiscard]] std::optional<std::string> torch_name_of(std::string const& parameter, Model model,
                                                       std::int64_t num_layers, Norm norm);
/// "convs.0.lin.weight" -> "layer0.weight"; nullopt for unknown names.
[[nodiscard]] std::optional<std::string> parameter_of_torch(std::string const& name);

/// Writes the parameters of a weights file, in their precision, with its architecture as metadata. Rank 0 does the work. Collective
/// over `comm`. Throws UserError on all ranks if `weights` is not a weights file, if it has trained features (whose rows are in the
/// order of a store), or if `output` cannot be written.
void export_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                    std::filesystem::path const& output);

/// Writes a weights file from a safetensors file with these names; 16-bit numbers become float32. Residuals and the scaling of
/// features, which the tensors do not show, are read from the metadata if present. Rank 0 does the work. Collective over `comm`.
/// Throws UserError on all ranks, which names the tensor, if one is unknown, is missing, or does not fit the others.
void import_weights(runtime::Communicator const& comm, std::filesystem::path const& tensors,
                    std::filesystem::path const& output);

} // namespace orthant::models
