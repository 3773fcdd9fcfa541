// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/state_dict_parts.hpp"

#include "models/gnn/files/network_weights.hpp"
#include "models/parameters/weights_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::SafetensorsFile;
using runtime::Tensor;
using runtime::TensorType;
using runtime::throw_user;

using Shape = std::vector<std::int64_t>;

/// Names of a layer's parameters: in PyTorch Geometric, and in weights files with one root and with several.
struct PartNames {
  std::string_view torch, ours, ours_of_several;
};
constexpr std::array<PartNames, 4> parts{{{"weight", "weight", "weight"},
                                          {"comp", "comp", "comp"},
                                          {"root", "self_weight", "roots"},
                                          {"bias", "bias", "biases"}}};
/// Trained features, with this name in both files.
constexpr char const* table_name = "features";

struct PartOfLayer {
  std::int64_t layer = 0;
  std::string part; // PyTorch Geometric's name
};

/// Splits "convs.1.root" or "layer1.root".
std::optional<PartOfLayer> part_of_layer(std::string_view name) {
  for (std::string_view const prefix : {"convs.", "layer"}) {
    if (!name.starts_with(prefix)) continue;
    auto const number = name.substr(prefix.size());
    PartOfLayer found;
    auto const [end, error] = std::from_chars(number.data(), number.data() + number.size(), found.layer);
    auto const rest = number.substr(static_cast<std::size_t>(end - number.data()));
    if (error != std::errc() || !rest.starts_with('.')) return std::nullopt;
    found.part = rest.substr(1);
    if (std::ranges::find(parts, found.part, &PartNames::torch) == parts.end()) return std::nullopt;
    return found;
  }
  return std::nullopt;
}

/// Tensors of one layer.
struct Layer {
  std::map<std::string, Tensor const*> tensors; // by part
  std::int64_t num_relations = 0, in = 0, out = 0;
  std::int64_t num_bases = 0, num_blocks = 0;
  std::int64_t num_roots = 0; // of types or relations, each with its bias; 0: one for all vertices
};

bool divides(std::int64_t num_blocks, Layer const& layer) {
  return num_blocks > 0 && layer.in % num_blocks == 0 && layer.out % num_blocks == 0;
}

/// Extents of a part in a weights file.
Shape extents_of(Layer const& layer, std::string const& part) {
  if (part == "bias") return layer.num_roots > 0 ? Shape{layer.num_roots, layer.out} : Shape{layer.out};
  if (part == "root") return {std::max<std::int64_t>(1, layer.num_roots) * layer.in, layer.out};
  if (part == "comp") return {layer.num_relations, layer.num_bases};
  auto const num_matrices = layer.num_bases > 0 ? layer.num_bases : layer.num_relations;
  return {num_matrices * layer.in, layer.num_blocks > 0 ? layer.out / layer.num_blocks : layer.out};
}

/// Shape of a part in PyTorch Geometric.
Shape torch_shape_of(Layer const& layer, std::string const& part) {
  if (part == "root" && layer.num_roots > 0) return {layer.num_roots, layer.in, layer.out};
  if (part != "weight") return extents_of(layer, part);
  auto const num_matrices = layer.num_bases > 0 ? layer.num_bases : layer.num_relations;
  if (layer.num_blocks == 0) return {num_matrices, layer.in, layer.out};
  return {num_matrices, layer.num_blocks, layer.in / layer.num_blocks, layer.out / layer.num_blocks};
}

/// The layers of a file of tensors. Checks that they belong to one network.
class ImportedLayers {
 public:
  ImportedLayers(SafetensorsFile const& file, std::string path) : path_(std::move(path)) {
    std::map<std::int64_t, Layer> layers;
    for (auto const& tensor : file.tensors()) {
      if (tensor.name == table_name) {
        table_ = &tensor;
        continue;
      }
      auto const found = part_of_layer(tensor.name);
      if (!found)
        throw_user("{}: '{}' is no parameter of R-GCN; known are layerL.weight, layerL.comp, layerL.root and "
                   "layerL.bias, or convs.L in place of layerL",
                   path_, tensor.name);
      if (!layers[found->layer].tensors.emplace(found->part, &tensor).second)
        throw_user("{}: '{}' is there twice, under two names", path_, tensor.name);
    }
    for (auto& [number, layer] : layers) {
      if (number != std::ssize(layers_))
        throw_user("{}: there is no layer{}.weight, but a layer {}", path_, layers_.size(), number);
      read_shapes(number, layer);
      layers_.push_back(layer);
    }
    if (table_ != nullptr &&
        (layers_.empty() || table_->shape.size() != 2 || table_->shape[1] != layers_[0].in))
      throw_user("{}: '{}' has the shape [{}]; it is [vertices, inputs of layer 0]", path_, table_name,
                 fmt::join(table_->shape, ", "));
  }

  [[nodiscard]] std::vector<Layer> const& all() const { return layers_; }
  /// Tensor of the trained features; null if the file has none.
  [[nodiscard]] Tensor const* table() const { return table_; }
  [[nodiscard]] std::int64_t num_bases() const { return most(&Layer::num_bases); }
  [[nodiscard]] std::int64_t num_blocks() const { return most(&Layer::num_blocks); }

 private:
  [[nodiscard]] std::int64_t most(std::int64_t Layer::*count) const {
    return std::ranges::max(layers_, {}, count).*count;
  }

  Shape const& shape(Layer const& layer, std::int64_t number, std::string const& part, std::size_t least,
                     std::size_t most_dimensions) const {
    auto const found = layer.tensors.find(part);
    if (found == layer.tensors.end()) throw_user("{}: there is no layer{}.{}", path_, number, part);
    auto const& extents = found->second->shape;
    if (extents.size() < least || extents.size() > most_dimensions ||
        std::ranges::find(extents, 0) != extents.end())
      throw_user("{}: '{}' has the shape [{}]", path_, found->second->name, fmt::join(extents, ", "));
    return extents;
  }

  void read_shapes(std::int64_t number, Layer& layer) const {
    auto const& weight = shape(layer, number, "weight", 3, 4);
    auto const& root = shape(layer, number, "root", 2, 3);
    if (root.size() == 3) layer.num_roots = root[0];
    layer.in = root[root.size() - 2];
    layer.out = root.back();
    layer.num_relations = weight[0];
    if (weight.size() == 4) layer.num_blocks = weight[1];
    if (layer.tensors.contains("comp")) {
      auto const& comp = shape(layer, number, "comp", 2, 2);
      layer.num_relations = comp[0];
      layer.num_bases = comp[1];
    }
    if (layer.num_bases > 0 && layer.num_blocks > 0)
      throw_user("{}: layer{} has bases and blocks", path_, number);
    if (layer.num_blocks > 0 && !divides(layer.num_blocks, layer))
      throw_user("{}: '{}' has {} blocks, which do not divide the widths of layer{}.root [{}, {}]", path_,
                 layer.tensors.at("weight")->name, layer.num_blocks, number, layer.in, layer.out);
    for (auto const& [part, tensor] : layer.tensors)
      if (auto const wanted = torch_shape_of(layer, part); tensor->shape != wanted)
        throw_user("{}: '{}' has the shape [{}]; beside layer{}.root [{}, {}] it is [{}]", path_,
                   tensor->name, fmt::join(tensor->shape, ", "), number, layer.in, layer.out,
                   fmt::join(wanted, ", "));
    if (number == 0) return;
    auto const& before = layers_.back();
    if (before.out != layer.in)
      throw_user("{}: layer{}.root takes {} columns, but the layer before it gives {}", path_, number,
                 layer.in, before.out);
    if (before.num_relations != layer.num_relations)
      throw_user("{}: layer{} has {} relations, and the layer before it {}", path_, number,
                 layer.num_relations, before.num_relations);
    if (before.num_roots != layer.num_roots)
      throw_user("{}: layer{} has {} roots, and the layer before it {}", path_, number, layer.num_roots,
                 before.num_roots);
    if (before.num_bases != layer.num_bases)
      throw_user("{}: layer{} has {} bases, and the layer before it {}", path_, number, layer.num_bases,
                 before.num_bases);
    if (before.tensors.contains("bias") != layer.tensors.contains("bias"))
      throw_user("{}: either all layers have a bias or none", path_);
  }

  std::string path_;
  std::vector<Layer> layers_;
  Tensor const* table_ = nullptr;
};

std::string parameter_of(std::int64_t layer, std::string_view torch_part, bool has_several) {
  auto const part = std::ranges::find(parts, torch_part, &PartNames::torch);
  return fmt::format("layer{}.{}", layer, has_several ? part->ours_of_several : part->ours);
}

Architecture architecture_of(ImportedLayers const& layers, runtime::TensorMetadata const& metadata) {
  auto const model = metadata.find("model");
  auto const is_sage = model != metadata.end() && model->second == name_of(Model::rsage);
  Architecture architecture{{"model", std::string(name_of(is_sage ? Model::rsage : Model::rgcn))},
                            {"bases", std::to_string(layers.num_bases())},
                            {"blocks", std::to_string(layers.num_blocks())},
                            {"layers", std::to_string(layers.all().size())},
                            {"norm", "none"},
                            {"input_projection", "no"},
                            {"head", "no"},
                            {"bias", layers.all().front().tensors.contains("bias") ? "yes" : "no"},
                            {"trained_features", layers.table() != nullptr ? "yes" : "no"}};
  if (auto const roots = layers.all().front().num_roots; roots > 0)
    architecture.emplace_back("roots", std::to_string(roots));
  for (auto const* const part : unseen_parts)
    if (auto const found = metadata.find(part); found != metadata.end()) architecture.push_back(*found);
  return architecture;
}

template<class T>
void write_weights(runtime::Communicator const& comm, SafetensorsFile const& tensors,
                   ImportedLayers const& layers, std::filesystem::path const& output) {
  runtime::Hdf5Output file(comm, output, "weights");
  auto const for_each_part = [&](auto const& visit) {
    if (auto const* const table = layers.table()) visit(array_of(table_name), table->shape, table->name);
    for (std::size_t l = 0; l < layers.all().size(); ++l)
      for (auto const& [part, tensor] : layers.all()[l].tensors)
        visit(array_of(parameter_of(static_cast<std::int64_t>(l), part, layers.all()[l].num_roots > 0)),
              extents_of(layers.all()[l], part), tensor->name);
  };
  for_each_part([&](std::string const& array, Shape const& extents, std::string const&) {
    file.create_array(array, runtime::detail::hdf5_type_of<T>(), extents);
  });
  for (auto const& [part, value] : architecture_of(layers, tensors.metadata()))
    file.write_attribute("/", part, value);
  file.reserve_space();
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    for_each_part([&](std::string const& array, Shape const& extents, std::string const& name) {
      auto const numbers = tensors.read<T>(name);
      file.write(array, Hdf5File::Extents(extents.size(), 0), extents, std::span<T const>(numbers));
    });
  });
  file.publish();
}

} // namespace

bool has_relation_weights(SafetensorsFile const& file) {
  return std::ranges::any_of(file.tensors(), [](Tensor const& tensor) {
    auto const found = part_of_layer(tensor.name);
    return found && found->part == "root";
  });
}

void import_relation_weights(runtime::Communicator const& comm, SafetensorsFile const& file,
                             std::filesystem::path const& path, std::filesystem::path const& output) {
  auto const layers = runtime::together(comm, [&] { return ImportedLayers(file, path.string()); });
  if (file.has_float64())
    write_weights<double>(comm, file, layers, output);
  else
    write_weights<float>(comm, file, layers, output);
}

void export_relation_weights(Hdf5File const& file, std::filesystem::path const& path,
                             runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const num_bases = recorded_number<std::int64_t>(file, path, "bases", 0);
  auto const num_blocks = recorded_number<std::int64_t>(file, path, "blocks", 0);
  auto const num_roots = recorded_number<std::int64_t>(file, path, "roots", 0);
  auto const name_of_part = [&](std::int64_t layer, std::string_view part) {
    return array_of(parameter_of(layer, part, num_roots > 0));
  };
  std::vector<std::string> arrays;
  std::vector<Tensor> tensors;
  auto const add = [&](std::string const& array, std::string const& name, Shape const& shape) {
    auto const type =
        file.type(array) == runtime::Hdf5Type::float64 ? TensorType::float64 : TensorType::float32;
    arrays.push_back(array);
    tensors.push_back({name, type, shape});
  };
  if (num_roots > 0 && file.contains(array_of(table_name)))
    add(array_of(table_name), table_name, file.extents(array_of(table_name)));
  for (std::int64_t l = 0; file.contains(name_of_part(l, "weight")); ++l) {
    auto const root = file.extents(name_of_part(l, "root"));
    auto const weight = file.extents(name_of_part(l, "weight"));
    Layer layer;
    layer.num_roots = num_roots;
    layer.in = root[0] / std::max<std::int64_t>(1, num_roots);
    layer.out = root[1];
    layer.num_bases = num_bases;
    layer.num_relations = layer.num_bases > 0 ? file.extents(name_of_part(l, "comp"))[0]
                                              : weight[0] / std::max<std::int64_t>(1, layer.in);
    layer.num_blocks = divides(num_blocks, layer) ? num_blocks : 0;
    for (auto const& [part, ours, ours_of_several] : parts)
      if (auto const array = name_of_part(l, part); file.contains(array))
        add(array, fmt::format("convs.{}.{}", l, part), torch_shape_of(layer, std::string(part)));
  }
  for (auto const& name : file.array_names()) {
    auto const array = name.starts_with('/') ? name : "/" + name;
    if (array.starts_with(array_of("")) && std::ranges::find(arrays, array) == arrays.end())
      throw_user(
          "{} has {}, which PyTorch Geometric's RGCNConv does not have: h5py reads the weights as they are",
          path.string(), array);
  }
  auto const is_double =
      std::ranges::any_of(tensors, [](Tensor const& tensor) { return tensor.type == TensorType::float64; });
  if (is_double)
    runtime::write_safetensors<double>(output, tensors, metadata,
                                       [&](std::size_t i) { return file.read_all<double>(arrays[i]); });
  else
    runtime::write_safetensors<float>(output, tensors, metadata,
                                      [&](std::size_t i) { return file.read_all<float>(arrays[i]); });
}

} // namespace orthant::models
