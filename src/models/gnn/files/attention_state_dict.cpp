// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/state_dict_parts.hpp"

#include "models/gnn/files/network_weights.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::SafetensorsFile;
using runtime::throw_user;

using TensorPlaces = std::vector<TensorPlace>;

std::string yes_or_no(bool has_it) {
  return has_it ? "yes" : "no";
}

std::string array_of_layer(std::int64_t l, std::string_view part) {
  return array_of(fmt::format("layer{}.{}", l, part));
}

/// A weight [outputs x inputs], or a bias, that is a whole array.
TensorPlace whole_weight(std::string tensor, std::int64_t in, std::int64_t out, std::string array) {
  return {std::move(tensor), {out, in}, std::move(array), {in, out}, 0, 0, true};
}
TensorPlace whole_vector(std::string tensor, std::int64_t length, std::string array) {
  return {std::move(tensor), {length}, std::move(array), {length}};
}

void append_linear(TensorPlaces& places, std::string const& torch, std::string const& ours, std::int64_t in,
                   std::int64_t out, bool has_bias) {
  places.push_back(whole_weight(torch + ".weight", in, out, array_of(ours + ".weight")));
  if (has_bias) places.push_back(whole_vector(torch + ".bias", out, array_of(ours + ".bias")));
}

/// Adds what the tensors do not tell, unless they do.
void append_unseen(Architecture& architecture, runtime::TensorMetadata const& metadata) {
  for (std::string const part : unseen_parts)
    if (auto const found = metadata.find(part);
        found != metadata.end() &&
        std::ranges::none_of(architecture, [&](auto const& known) { return known.first == part; }))
      architecture.push_back(*found);
}

// GAT and GATv2.

/// One layer: inputs, H heads of d columns, features of edges.
struct GatLayer {
  std::int64_t in = 0, num_heads = 0, width = 0, num_edge_features = 0;
  bool averages_heads = false;
  [[nodiscard]] std::int64_t columns() const { return num_heads * width; }
  [[nodiscard]] std::int64_t out() const { return averages_heads ? width : columns(); }
};

struct Gat {
  bool is_dynamic = false; // GATv2
  bool has_bias = false;
  std::int64_t num_projected = 0,
               num_classes = 0; // inputs of lin_in and outputs of lin_out; 0: there is none
  std::vector<GatLayer> layers{};
};

std::string name_in_layer(std::int64_t l, std::string_view leaf) {
  return fmt::format("convs.{}.{}", l, leaf);
}

/// Adds the places of what every layer has.
void append_layer(TensorPlaces& places, Gat const& network, std::int64_t l) {
  auto const& layer = network.layers[static_cast<std::size_t>(l)];
  auto const name = [&](char const* leaf) { return name_in_layer(l, leaf); };
  auto const array = [&](char const* part) { return array_of_layer(l, part); };
  auto const columns = layer.columns();
  auto const heads = layer.num_heads;
  TensorShape const of_weight{columns, layer.in}, of_vectors{1, heads, layer.width};
  if (network.is_dynamic) {
    TensorShape const weight{layer.in, 2 * columns};
    places.push_back({name("lin_l.weight"), of_weight, array("weight"), weight, 0, 0, true});
    places.push_back({name("lin_r.weight"), of_weight, array("weight"), weight, 0, columns, true});
    places.push_back({name("att"), of_vectors, array("attention"), {heads, layer.width}});
    for (auto const* const end : {"lin_l.bias", "lin_r.bias"})
      if (network.has_bias) places.push_back({name(end), {columns}, ""});
  } else {
    TensorShape const vectors{heads, 2 * layer.width};
    places.push_back(whole_weight(name("lin.weight"), layer.in, columns, array("weight")));
    places.push_back({name("att_dst"), of_vectors, array("attention"), vectors});
    places.push_back({name("att_src"), of_vectors, array("attention"), vectors, 0, layer.width});
  }
  if (network.has_bias) places.push_back(whole_vector(name("bias"), layer.out(), array("bias")));
  if (layer.num_edge_features == 0) return;
  places.push_back(
      whole_weight(name("lin_edge.weight"), layer.num_edge_features, columns, array("edge_weight")));
  if (!network.is_dynamic)
    places.push_back({name("att_edge"), of_vectors, array("edge_attention"), {heads, layer.width}});
}

/// Adds the places of what a layer may have: `has` tells whether the network has the tensor of a place.
template<class Has>
void append_parts(TensorPlaces& places, Gat const& network, std::int64_t l, Has const& has) {
  auto const& layer = network.layers[static_cast<std::size_t>(l)];
  auto const residual = whole_weight(fmt::format("residuals.{}.weight", l), layer.in, layer.out(),
                                     array_of_layer(l, "residual.weight"));
  if (has(residual)) places.push_back(residual);
  // BatchNorm is known by its statistics. PyTorch Geometric's has PyTorch's as `module`.
  auto const vector = [&](char const* leaf, char const* part) {
    return whole_vector(fmt::format("norms.{}.{}", l, leaf), layer.out(), array_of_layer(l, part));
  };
  auto const is_batch_norm = has(vector("module.running_mean", "norm_mean"));
  std::vector<TensorPlace> const of_norm =
      is_batch_norm ? TensorPlaces{vector("module.weight", "norm"), vector("module.bias", "norm_shift"),
                                   vector("module.running_mean", "norm_mean"),
                                   vector("module.running_var", "norm_variance")}
                    : TensorPlaces{vector("weight", "norm"), vector("bias", "norm_shift")};
  for (auto const& place : of_norm)
    if (is_batch_norm || has(place)) places.push_back(place);
}

template<class Has>
TensorPlaces places_of(Gat const& network, Has const& has) {
  TensorPlaces places;
  for (std::int64_t l = 0; l < std::ssize(network.layers); ++l) {
    append_layer(places, network, l);
    append_parts(places, network, l, has);
  }
  if (network.num_projected > 0)
    append_linear(places, "lin_in", "input", network.num_projected, network.layers.front().in,
                  network.has_bias);
  if (network.num_classes > 0)
    append_linear(places, "lin_out", "head", network.layers.back().out(), network.num_classes,
                  network.has_bias);
  return places;
}

void require_follows(std::string const& path, std::int64_t l, GatLayer const& before, GatLayer const& layer) {
  if (before.out() != layer.in)
    throw_user("{}: layer {} takes {} columns, but the layer before it gives {}", path, l, layer.in,
               before.out());
  if (before.num_edge_features != layer.num_edge_features)
    throw_user("{}: layer {} reads {} features of edges, and the layer before it {}", path, l,
               layer.num_edge_features, before.num_edge_features);
  if (!layer.averages_heads && before.num_heads != layer.num_heads)
    throw_user("{}: layer {} has {} heads, and the layer before it {}", path, l, layer.num_heads,
               before.num_heads);
}

/// The network whose layers have attention vectors of this name.
Gat gat_in(TensorShapes const& tensors, char const* vectors, bool is_dynamic) {
  Gat network{.is_dynamic = is_dynamic, .has_bias = tensors.has(name_in_layer(0, "bias"))};
  if (tensors.has("lin_in.weight")) network.num_projected = tensors.of("lin_in.weight", 2)[1];
  if (tensors.has("lin_out.weight")) network.num_classes = tensors.of("lin_out.weight", 2)[0];
  for (std::int64_t l = 0; tensors.has(name_in_layer(l, vectors)); ++l) {
    auto const shape = tensors.of(name_in_layer(l, vectors), 3);
    GatLayer layer{.num_heads = shape[1], .width = shape[2]};
    layer.in = tensors.of(name_in_layer(l, is_dynamic ? "lin_l.weight" : "lin.weight"), 2)[1];
    if (auto const edges = name_in_layer(l, "lin_edge.weight"); tensors.has(edges))
      layer.num_edge_features = tensors.of(edges, 2)[1];
    layer.averages_heads = network.num_classes == 0 && !tensors.has(name_in_layer(l + 1, vectors));
    if (l > 0) require_follows(tensors.path(), l, network.layers.back(), layer);
    network.layers.push_back(layer);
  }
  return network;
}

Architecture architecture_of(Gat const& network, TensorPlaces const& places,
                             runtime::TensorMetadata const& metadata) {
  auto const has = [&](std::string const& array) {
    return std::ranges::any_of(places, [&](auto const& place) { return place.array == array_of(array); });
  };
  auto const norm = has("layer0.norm_mean")    ? Norm::batch
                    : has("layer0.norm_shift") ? Norm::layer
                    : has("layer0.norm")       ? Norm::rms
                                               : Norm::none;
  auto const& last = network.layers.back();
  Architecture architecture{{"model", std::string(name_of(network.is_dynamic ? Model::gatv2 : Model::gat))},
                            {"edge_features", std::to_string(last.num_edge_features)},
                            {"layers", std::to_string(network.layers.size())},
                            {"norm", std::string(name_of(norm))},
                            {"input_projection", yes_or_no(network.num_projected > 0)},
                            {"head", yes_or_no(network.num_classes > 0)},
                            {"bias", yes_or_no(network.has_bias)},
                            {"jump", std::string(name_of(JumpKind::none))},
                            {"trained_features", "no"}};
  if (auto const& first = network.layers.front(); !first.averages_heads)
    architecture.emplace_back("heads", std::to_string(first.num_heads));
  if (std::ranges::any_of(places, [](auto const& p) { return p.array.ends_with(".residual.weight"); }))
    architecture.emplace_back("residual", name_of_residuals(true, true));
  if (last.averages_heads) architecture.emplace_back("output_heads", std::to_string(last.num_heads));
  append_unseen(architecture, metadata);
  return architecture;
}

void import_gat_weights(runtime::Communicator const& comm, SafetensorsFile const& file,
                        std::filesystem::path const& path, bool is_dynamic,
                        std::filesystem::path const& output) {
  auto const [network, places] = runtime::together(comm, [&] {
    TensorShapes const tensors(file, path.string());
    auto found = gat_in(tensors, is_dynamic ? "att" : "att_dst", is_dynamic);
    auto all = places_of(found, [&](TensorPlace const& place) { return tensors.has(place.tensor); });
    // GATv2Conv has biases of both ends, which may be left out of the file because they are 0.
    std::erase_if(all, [&](auto const& place) { return place.array.empty() && !tensors.has(place.tensor); });
    tensors.require_fit(all, is_dynamic ? "GATv2" : "GAT");
    return std::pair(std::move(found), std::move(all));
  });
  import_places(comm, file, path, places, architecture_of(network, places, file.metadata()), output);
}

void export_gat_weights(Hdf5File const& file, std::filesystem::path const& path,
                        runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const extents = [&](std::int64_t l, char const* part) {
    return weight_extents(file, path, fmt::format("layer{}.{}", l, part));
  };
  Gat network{.has_bias = file.contains(array_of("layer0.bias"))};
  if (auto const input = weight_extents(file, path, "input.weight")) network.num_projected = (*input)[0];
  if (auto const head = weight_extents(file, path, "head.weight")) network.num_classes = (*head)[1];
  auto const model = recorded_model(file, path);
  for (std::int64_t l = 0; auto const weight = extents(l, "weight"); ++l) {
    auto const vectors = extents(l, "attention");
    if (!vectors) throw_user("{} has no {}", path.string(), array_of_layer(l, "attention"));
    // GATv2 has vectors of d numbers for 2 d columns.
    network.is_dynamic = model ? *model == Model::gatv2 : (*weight)[1] == 2 * (*vectors)[0] * (*vectors)[1];
    GatLayer layer{.in = (*weight)[0],
                   .num_heads = (*vectors)[0],
                   .width = network.is_dynamic ? (*vectors)[1] : (*vectors)[1] / 2};
    if (auto const edges = extents(l, "edge_weight")) layer.num_edge_features = (*edges)[0];
    layer.averages_heads = network.num_classes == 0 && !extents(l + 1, "weight");
    network.layers.push_back(layer);
  }
  if (network.layers.empty()) throw_user("{} has no {}", path.string(), array_of_layer(0, "weight"));
  export_places(file, path,
                places_of(network, [&](TensorPlace const& place) { return file.contains(place.array); }),
                network.is_dynamic ? "GATv2Conv" : "GATConv", metadata, output);
}

// R-GAT.

/// One layer: R relations, inputs, H heads of d columns.
struct RgatLayer {
  std::int64_t num_relations = 0, in = 0, num_heads = 0, width = 0;
  bool has_target_weights = false, has_biases = false;
  [[nodiscard]] std::int64_t out() const { return num_heads * width; }
};

std::string name_in_relation(std::int64_t layer, std::int64_t relation, std::string_view leaf) {
  return fmt::format("convs.{}.convs.{}.{}", layer, relation, leaf);
}

void append_layer(TensorPlaces& places, std::int64_t l, RgatLayer const& layer) {
  auto const relations = layer.num_relations;
  auto const out = layer.out();
  auto const array = [&](char const* part) { return array_of_layer(l, part); };
  TensorShape const weight{relations * layer.in, out}, vectors{relations * layer.num_heads, 2 * layer.width};
  TensorShape const of_head{1, layer.num_heads, layer.width};
  for (std::int64_t r = 0; r < relations; ++r) {
    auto const name = [&](char const* leaf) { return name_in_relation(l, r, leaf); };
    auto const add_weight = [&](char const* leaf, char const* part) {
      places.push_back({name(leaf), {out, layer.in}, array(part), weight, r * layer.in, 0, true});
    };
    add_weight(layer.has_target_weights ? "lin_src.weight" : "lin.weight", "weight");
    if (layer.has_target_weights) add_weight("lin_dst.weight", "target_weight");
    places.push_back({name("att_dst"), of_head, array("attention"), vectors, r * layer.num_heads});
    places.push_back(
        {name("att_src"), of_head, array("attention"), vectors, r * layer.num_heads, layer.width});
    if (layer.has_biases) places.push_back({name("bias"), {out}, array("biases"), {relations, out}, r});
  }
}

constexpr char const* name_of_table = "features";

void require_follows(std::string const& path, std::int64_t l, RgatLayer const& before,
                     RgatLayer const& layer) {
  if (before.out() != layer.in)
    throw_user("{}: layer {} takes {} columns, but the layer before it gives {}", path, l, layer.in,
               before.out());
  if (before.num_relations != layer.num_relations || before.num_heads != layer.num_heads)
    throw_user("{}: layer {} has {} relations and {} heads, and the layer before it {} and {}", path, l,
               layer.num_relations, layer.num_heads, before.num_relations, before.num_heads);
  if (before.has_target_weights != layer.has_target_weights || before.has_biases != layer.has_biases)
    throw_user("{}: layer {} has other parameters than the layer before it", path, l);
}

/// The layers in a file of tensors.
std::vector<RgatLayer> rgat_layers_in(TensorShapes const& tensors) {
  std::vector<RgatLayer> layers;
  auto const first = [](std::int64_t l, char const* leaf) { return name_in_relation(l, 0, leaf); };
  for (std::int64_t l = 0; tensors.has(first(l, "att_src")); ++l) {
    RgatLayer layer;
    auto const vector = tensors.of(first(l, "att_src"), 3);
    layer.num_heads = vector[1];
    layer.width = vector[2];
    layer.has_target_weights = tensors.has(first(l, "lin_dst.weight"));
    layer.has_biases = tensors.has(first(l, "bias"));
    layer.in = tensors.of(first(l, layer.has_target_weights ? "lin_src.weight" : "lin.weight"), 2)[1];
    while (tensors.has(name_in_relation(l, layer.num_relations, "att_src")))
      ++layer.num_relations;
    if (l > 0) require_follows(tensors.path(), l, layers.back(), layer);
    layers.push_back(layer);
  }
  return layers;
}

void import_rgat_weights(runtime::Communicator const& comm, SafetensorsFile const& file,
                         std::filesystem::path const& path, std::filesystem::path const& output) {
  Architecture architecture;
  auto const places = runtime::together(comm, [&] {
    TensorShapes const tensors(file, path.string());
    auto const layers = rgat_layers_in(tensors);
    auto const& first = layers.front();
    TensorPlaces all;
    for (std::int64_t l = 0; l < std::ssize(layers); ++l)
      append_layer(all, l, layers[static_cast<std::size_t>(l)]);
    append_linear(all, "lin", "head", layers.back().out(), tensors.of("lin.weight", 2)[0],
                  layers.back().has_biases);
    auto const has_table = tensors.has(name_of_table);
    if (has_table) { // [vertices, inputs of layer 0]
      TensorShape const table{tensors.of(name_of_table, 2)[0], first.in};
      all.push_back({name_of_table, table, array_of(name_of_table), table});
    }
    tensors.require_fit(all, "R-GAT");
    architecture = {{"model", std::string(name_of(Model::rgat))},
                    {"heads", std::to_string(first.num_heads)},
                    {"target_weights", yes_or_no(first.has_target_weights)},
                    {"roots", std::to_string(first.num_relations)},
                    {"layers", std::to_string(layers.size())},
                    {"norm", "none"},
                    {"input_projection", "no"},
                    {"head", "yes"},
                    {"bias", yes_or_no(first.has_biases)},
                    {"trained_features", yes_or_no(has_table)}};
    append_unseen(architecture, file.metadata());
    return all;
  });
  import_places(comm, file, path, places, architecture, output);
}

void export_rgat_weights(Hdf5File const& file, std::filesystem::path const& path,
                         runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  RgatLayer layer;
  layer.num_heads = recorded_number<std::int64_t>(file, path, "heads", 0);
  layer.num_relations = recorded_number<std::int64_t>(file, path, "roots", 0);
  if (layer.num_heads < 1 || layer.num_relations < 1)
    throw_user("{}: {} heads and {} relations", path.string(), layer.num_heads, layer.num_relations);
  layer.has_target_weights = file.contains(array_of_layer(0, "target_weight"));
  layer.has_biases = file.contains(array_of_layer(0, "biases"));
  TensorPlaces places;
  for (std::int64_t l = 0; file.contains(array_of_layer(l, "weight")); ++l) {
    auto const weight = file.extents(array_of_layer(l, "weight"));
    layer.in = weight[0] / layer.num_relations;
    layer.width = weight[1] / layer.num_heads;
    append_layer(places, l, layer);
  }
  if (places.empty()) throw_user("{} has no {}", path.string(), array_of_layer(0, "weight"));
  if (file.contains(array_of("head.weight"))) {
    auto const head = file.extents(array_of("head.weight"));
    append_linear(places, "lin", "head", head[0], head[1], layer.has_biases);
  }
  if (auto const table = array_of(name_of_table); file.contains(table))
    places.push_back({name_of_table, file.extents(table), table, file.extents(table)});
  export_places(file, path, places, "HeteroConv", metadata, output);
}

bool has_rgat(TensorShapes const& tensors) {
  return tensors.has(name_in_relation(0, 0, "att_src"));
}

} // namespace

bool has_attention_weights(SafetensorsFile const& file) {
  TensorShapes const tensors(file, {});
  return has_rgat(tensors) || tensors.has(name_in_layer(0, "att")) ||
         tensors.has(name_in_layer(0, "att_dst"));
}

void import_attention_weights(runtime::Communicator const& comm, SafetensorsFile const& file,
                              std::filesystem::path const& path, std::filesystem::path const& output) {
  TensorShapes const tensors(file, {});
  if (has_rgat(tensors)) return import_rgat_weights(comm, file, path, output);
  import_gat_weights(comm, file, path, tensors.has(name_in_layer(0, "att")), output);
}

void export_attention_weights(Hdf5File const& file, std::filesystem::path const& path,
                              runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const model = recorded_model(file, path);
  if (model == Model::rgat) return export_rgat_weights(file, path, metadata, output);
  if (model == Model::transformer)
    throw_user("{} has layers of attention by dot products, which are not exported so far: h5py reads the "
               "weights as they are",
               path.string());
  export_gat_weights(file, path, metadata, output);
}

} // namespace orthant::models
