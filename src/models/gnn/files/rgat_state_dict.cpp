// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/relation_state_dict.hpp"

#include "models/gnn/files/network_weights.hpp"
#include "models/parameters/weights_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::SafetensorsFile;
using runtime::Tensor;
using runtime::TensorType;
using runtime::throw_user;

using Shape = std::vector<std::int64_t>;

/// One layer: R relations, inputs, H heads of d columns.
struct RgatLayer {
  std::int64_t num_relations = 0, in = 0, num_heads = 0, width = 0;
  bool has_target_weights = false, has_biases = false;
  [[nodiscard]] std::int64_t out() const { return num_heads * width; }
};

/// Where the numbers of a tensor lie in an array of a weights file.
struct Place {
  std::string tensor;
  Shape shape;
  std::string array;
  Shape extents; // of the array
  std::int64_t first_row = 0, first_column = 0;
  bool is_transposed = false;
};

std::string name_of_tensor(std::int64_t layer, std::int64_t relation, std::string_view leaf) {
  return fmt::format("convs.{}.convs.{}.{}", layer, relation, leaf);
}

std::vector<Place> places_of_layer(std::int64_t l, RgatLayer const& layer) {
  auto const relations = layer.num_relations;
  auto const out = layer.out();
  auto const array = [&](char const* part) { return array_of(fmt::format("layer{}.{}", l, part)); };
  std::vector<Place> places;
  for (std::int64_t r = 0; r < relations; ++r) {
    auto const name = [&](char const* leaf) { return name_of_tensor(l, r, leaf); };
    Shape const weight{relations * layer.in, out}, vectors{relations * layer.num_heads, 2 * layer.width};
    Shape const of_head{1, layer.num_heads, layer.width};
    places.push_back({name(layer.has_target_weights ? "lin_src.weight" : "lin.weight"),
                      {out, layer.in},
                      array("weight"),
                      weight,
                      r * layer.in,
                      0,
                      true});
    if (layer.has_target_weights)
      places.push_back(
          {name("lin_dst.weight"), {out, layer.in}, array("target_weight"), weight, r * layer.in, 0, true});
    places.push_back({name("att_dst"), of_head, array("attention"), vectors, r * layer.num_heads, 0, false});
    places.push_back(
        {name("att_src"), of_head, array("attention"), vectors, r * layer.num_heads, layer.width, false});
    if (layer.has_biases)
      places.push_back({name("bias"), {out}, array("biases"), {relations, out}, r, 0, false});
  }
  return places;
}

std::vector<Place> places_of_head(std::int64_t in, std::int64_t num_classes, bool has_bias) {
  std::vector<Place> places{
      {"lin.weight", {num_classes, in}, array_of("head.weight"), {in, num_classes}, 0, 0, true}};
  if (has_bias)
    places.push_back({"lin.bias", {num_classes}, array_of("head.bias"), {num_classes}, 0, 0, false});
  return places;
}

/// Calls visit(index in the tensor, index in the array) for all numbers of a tensor.
template<class Visit>
void for_each_number(Place const& place, Visit const& visit) {
  auto const num_columns = place.extents.back();
  auto const width = place.shape.back();
  std::int64_t count = 1;
  for (auto const extent : place.shape)
    count *= extent;
  for (std::int64_t k = 0; k < count; ++k) {
    auto const row = place.is_transposed ? k % width : k / width;
    auto const column = place.is_transposed ? k / width : k % width;
    visit(static_cast<std::size_t>(k),
          static_cast<std::size_t>((place.first_row + row) * num_columns + place.first_column + column));
  }
}

std::string const name_of_table = "features";

/// The network in a file of tensors. Checks that its tensors belong together.
struct ImportedRgat {
  std::vector<RgatLayer> layers;
  std::vector<Place> places;
  Tensor const* table = nullptr;

  ImportedRgat(SafetensorsFile const& file, std::string const& path) {
    std::map<std::string, Tensor const*> tensors;
    for (auto const& tensor : file.tensors())
      tensors.emplace(tensor.name, &tensor);
    auto const has = [&](std::string const& name) { return tensors.contains(name); };
    auto const shape_of = [&](std::string const& name, std::size_t num_dimensions) {
      auto const found = tensors.find(name);
      if (found == tensors.end()) throw_user("{}: there is no '{}'", path, name);
      auto const& shape = found->second->shape;
      if (shape.size() != num_dimensions || std::ranges::find(shape, 0) != shape.end())
        throw_user("{}: '{}' has the shape [{}]", path, name, fmt::join(shape, ", "));
      return shape;
    };
    auto const first = [](std::int64_t l, char const* leaf) { return name_of_tensor(l, 0, leaf); };
    for (std::int64_t l = 0; has(first(l, "att_src")); ++l) {
      RgatLayer layer;
      auto const vector = shape_of(first(l, "att_src"), 3);
      layer.num_heads = vector[1];
      layer.width = vector[2];
      layer.has_target_weights = has(first(l, "lin_dst.weight"));
      layer.has_biases = has(first(l, "bias"));
      layer.in = shape_of(first(l, layer.has_target_weights ? "lin_src.weight" : "lin.weight"), 2)[1];
      while (has(name_of_tensor(l, layer.num_relations, "att_src")))
        ++layer.num_relations;
      if (l > 0) require_follows(path, l, layers.back(), layer);
      layers.push_back(layer);
      auto const of_layer = places_of_layer(l, layer);
      places.insert(places.end(), of_layer.begin(), of_layer.end());
    }
    auto const head =
        places_of_head(layers.back().out(), shape_of("lin.weight", 2)[0], layers.back().has_biases);
    places.insert(places.end(), head.begin(), head.end());
    std::set<std::string> known{name_of_table};
    for (auto const& place : places) {
      known.insert(place.tensor);
      if (auto const shape = shape_of(place.tensor, place.shape.size()); shape != place.shape)
        throw_user("{}: '{}' has the shape [{}]; beside the others it is [{}]", path, place.tensor,
                   fmt::join(shape, ", "), fmt::join(place.shape, ", "));
    }
    for (auto const& [name, tensor] : tensors)
      if (!known.contains(name))
        throw_user("{}: '{}' is no parameter of R-GAT, or does not fit the others", path, name);
    if (has(name_of_table)) table = tensors.at(name_of_table);
    if (table != nullptr && (table->shape.size() != 2 || table->shape[1] != layers.front().in))
      throw_user("{}: '{}' has the shape [{}]; it is [vertices, inputs of layer 0]", path, name_of_table,
                 fmt::join(table->shape, ", "));
  }

 private:
  static void require_follows(std::string const& path, std::int64_t l, RgatLayer const& before,
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
};

Architecture architecture_of(ImportedRgat const& network, runtime::TensorMetadata const& metadata) {
  auto const& first = network.layers.front();
  auto const yes_or_no = [](bool has_it) { return std::string(has_it ? "yes" : "no"); };
  Architecture architecture{{"model", std::string(name_of(Model::rgat))},
                            {"heads", std::to_string(first.num_heads)},
                            {"target_weights", yes_or_no(first.has_target_weights)},
                            {"roots", std::to_string(first.num_relations)},
                            {"layers", std::to_string(network.layers.size())},
                            {"norm", "none"},
                            {"input_projection", "no"},
                            {"head", "yes"},
                            {"bias", yes_or_no(first.has_biases)},
                            {"trained_features", yes_or_no(network.table != nullptr)}};
  for (auto const* const part : unseen_parts)
    if (auto const found = metadata.find(part); found != metadata.end()) architecture.push_back(*found);
  return architecture;
}

template<class T>
void write_weights(runtime::Communicator const& comm, SafetensorsFile const& tensors,
                   ImportedRgat const& network, std::filesystem::path const& output) {
  std::map<std::string, Shape> arrays;
  for (auto const& place : network.places)
    arrays.emplace(place.array, place.extents);
  if (network.table != nullptr) arrays.emplace(array_of(name_of_table), network.table->shape);
  runtime::Hdf5Output file(comm, output, "weights");
  for (auto const& [array, extents] : arrays)
    file.create_array(array, runtime::detail::hdf5_type_of<T>(), extents);
  for (auto const& [part, value] : architecture_of(network, tensors.metadata()))
    file.write_attribute("/", part, value);
  file.reserve_space();
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    for (auto const& [array, extents] : arrays) {
      std::vector<T> numbers;
      if (array == array_of(name_of_table)) numbers = tensors.read<T>(name_of_table);
      for (auto const& place : network.places) {
        if (place.array != array) continue;
        numbers.resize(static_cast<std::size_t>(extents.size() == 1 ? extents[0] : extents[0] * extents[1]));
        auto const read = tensors.read<T>(place.tensor);
        for_each_number(
            place, [&](std::size_t in_tensor, std::size_t in_array) { numbers[in_array] = read[in_tensor]; });
      }
      file.write(array, Hdf5File::Extents(extents.size(), 0), extents, std::span<T const>(numbers));
    }
  });
  file.publish();
}

template<class T>
void write_tensors(Hdf5File const& file, std::vector<Place> const& places,
                   runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const type = std::is_same_v<T, double> ? TensorType::float64 : TensorType::float32;
  std::vector<Tensor> tensors;
  for (auto const& place : places)
    tensors.push_back({place.tensor, type, place.shape});
  std::map<std::string, std::vector<T>> arrays;
  runtime::write_safetensors<T>(output, tensors, metadata, [&](std::size_t i) {
    auto const& place = places[i];
    auto found = arrays.find(place.array);
    if (found == arrays.end()) found = arrays.emplace(place.array, file.read_all<T>(place.array)).first;
    std::int64_t count = 1;
    for (auto const extent : place.shape)
      count *= extent;
    std::vector<T> numbers(static_cast<std::size_t>(count));
    for_each_number(place, [&](std::size_t in_tensor, std::size_t in_array) {
      numbers[in_tensor] = found->second[in_array];
    });
    return numbers;
  });
}

} // namespace

bool has_rgat_weights(SafetensorsFile const& file) {
  return std::ranges::any_of(
      file.tensors(), [](Tensor const& tensor) { return tensor.name == name_of_tensor(0, 0, "att_src"); });
}

void import_rgat_weights(runtime::Communicator const& comm, SafetensorsFile const& file,
                         std::filesystem::path const& path, std::filesystem::path const& output) {
  auto const network = runtime::together(comm, [&] { return ImportedRgat(file, path.string()); });
  if (file.has_float64())
    write_weights<double>(comm, file, network, output);
  else
    write_weights<float>(comm, file, network, output);
}

void export_rgat_weights(Hdf5File const& file, std::filesystem::path const& path,
                         runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const array = [](std::int64_t l, char const* part) {
    return array_of(fmt::format("layer{}.{}", l, part));
  };
  RgatLayer layer;
  layer.num_heads = recorded_number<std::int64_t>(file, path, "heads", 0);
  layer.num_relations = recorded_number<std::int64_t>(file, path, "roots", 0);
  if (layer.num_heads < 1 || layer.num_relations < 1)
    throw_user("{}: {} heads and {} relations", path.string(), layer.num_heads, layer.num_relations);
  layer.has_target_weights = file.contains(array(0, "target_weight"));
  layer.has_biases = file.contains(array(0, "biases"));
  std::vector<Place> places;
  for (std::int64_t l = 0; file.contains(array(l, "weight")); ++l) {
    auto const weight = file.extents(array(l, "weight"));
    layer.in = weight[0] / layer.num_relations;
    layer.width = weight[1] / layer.num_heads;
    auto const of_layer = places_of_layer(l, layer);
    places.insert(places.end(), of_layer.begin(), of_layer.end());
  }
  if (places.empty()) throw_user("{} has no {}", path.string(), array(0, "weight"));
  if (file.contains(array_of("head.weight"))) {
    auto const head = file.extents(array_of("head.weight"));
    auto const of_head = places_of_head(head[0], head[1], layer.has_biases);
    places.insert(places.end(), of_head.begin(), of_head.end());
  }
  if (auto const table = array_of(name_of_table); file.contains(table))
    places.push_back({name_of_table, file.extents(table), table, file.extents(table), 0, 0, false});
  std::set<std::string> exported;
  for (auto const& place : places) {
    exported.insert(place.array);
    if (!file.contains(place.array) || file.extents(place.array) != place.extents)
      throw_user("{}: {} is missing, or does not fit the other weights", path.string(), place.array);
  }
  for (auto const& name : file.array_names()) {
    auto const full = name.starts_with('/') ? name : "/" + name;
    if (full.starts_with(array_of("")) && !exported.contains(full))
      throw_user("{} has {}, which HeteroConv of PyTorch Geometric does not have: h5py reads the weights as "
                 "they are",
                 path.string(), full);
  }
  if (file.type(array(0, "weight")) == runtime::Hdf5Type::float64)
    write_tensors<double>(file, places, metadata, output);
  else
    write_tensors<float>(file, places, metadata, output);
}

} // namespace orthant::models
