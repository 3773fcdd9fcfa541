// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/state_dict_parts.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <span>
#include <utility>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::SafetensorsFile;
using runtime::throw_user;

std::size_t count_of(TensorShape const& shape) {
  std::int64_t count = 1;
  for (auto const extent : shape)
    count *= extent;
  return static_cast<std::size_t>(count);
}

/// Calls visit(index in the tensor, index in the array) for all numbers of a tensor.
template<class Visit>
void for_each_number(TensorPlace const& place, Visit const& visit) {
  auto const num_columns = place.extents.back();
  auto const width = place.shape.back();
  auto const count = static_cast<std::int64_t>(count_of(place.shape));
  for (std::int64_t k = 0; k < count; ++k) {
    auto const row = place.is_transposed ? k % width : k / width;
    auto const column = place.is_transposed ? k / width : k % width;
    visit(static_cast<std::size_t>(k),
          static_cast<std::size_t>((place.first_row + row) * num_columns + place.first_column + column));
  }
}

template<class T>
void write_arrays(runtime::Communicator const& comm, SafetensorsFile const& tensors,
                  std::filesystem::path const& path, std::vector<TensorPlace> const& places,
                  Architecture const& architecture, std::filesystem::path const& output) {
  std::map<std::string, TensorShape> arrays;
  for (auto const& place : places)
    if (!place.array.empty()) arrays.emplace(place.array, place.extents);
  runtime::together(comm, [&] {
    for (auto const& place : places)
      if (comm.is_root() && place.array.empty() &&
          std::ranges::any_of(tensors.read<T>(place.tensor), [](T number) { return number != 0; }))
        throw_user("{}: '{}' is not 0, and the model has no such parameter", path.string(), place.tensor);
  });
  runtime::Hdf5Output file(comm, output, "weights");
  for (auto const& [array, extents] : arrays)
    file.create_array(array, runtime::detail::hdf5_type_of<T>(), extents);
  for (auto const& [part, value] : architecture)
    file.write_attribute("/", part, value);
  file.reserve_space();
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    for (auto const& [array, extents] : arrays) {
      std::vector<T> numbers(count_of(extents));
      for (auto const& place : places) {
        if (place.array != array) continue;
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
void write_tensors(Hdf5File const& file, std::vector<TensorPlace> const& places,
                   runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  auto const type = std::is_same_v<T, double> ? runtime::TensorType::float64 : runtime::TensorType::float32;
  std::vector<runtime::Tensor> tensors;
  for (auto const& place : places)
    tensors.push_back({place.tensor, type, place.shape});
  std::map<std::string, std::vector<T>> arrays;
  runtime::write_safetensors<T>(output, tensors, metadata, [&](std::size_t i) {
    auto const& place = places[i];
    std::vector<T> numbers(count_of(place.shape));
    if (place.array.empty()) return numbers;
    auto found = arrays.find(place.array);
    if (found == arrays.end()) found = arrays.emplace(place.array, file.read_all<T>(place.array)).first;
    for_each_number(place, [&](std::size_t in_tensor, std::size_t in_array) {
      numbers[in_tensor] = found->second[in_array];
    });
    return numbers;
  });
}

} // namespace

TensorShapes::TensorShapes(SafetensorsFile const& file, std::string path) : path_(std::move(path)) {
  for (auto const& tensor : file.tensors())
    shapes_.emplace(tensor.name, tensor.shape);
}

TensorShape const& TensorShapes::of(std::string const& name, std::size_t num_dimensions) const {
  auto const found = shapes_.find(name);
  if (found == shapes_.end()) throw_user("{}: there is no '{}'", path_, name);
  auto const& shape = found->second;
  if (shape.size() != num_dimensions || std::ranges::find(shape, 0) != shape.end())
    throw_user("{}: '{}' has the shape [{}]", path_, name, fmt::join(shape, ", "));
  return shape;
}

void TensorShapes::require_fit(std::vector<TensorPlace> const& places, std::string_view of_what) const {
  std::set<std::string> known;
  for (auto const& place : places) {
    known.insert(place.tensor);
    if (auto const& shape = of(place.tensor, place.shape.size()); shape != place.shape)
      throw_user("{}: '{}' has the shape [{}]; beside the others it is [{}]", path_, place.tensor,
                 fmt::join(shape, ", "), fmt::join(place.shape, ", "));
  }
  for (auto const& [name, shape] : shapes_)
    if (!known.contains(name))
      throw_user("{}: '{}' is no parameter of {}, or does not fit the others", path_, name, of_what);
}

void import_places(runtime::Communicator const& comm, SafetensorsFile const& file,
                   std::filesystem::path const& path, std::vector<TensorPlace> const& places,
                   Architecture const& architecture, std::filesystem::path const& output) {
  if (file.has_float64())
    write_arrays<double>(comm, file, path, places, architecture, output);
  else
    write_arrays<float>(comm, file, path, places, architecture, output);
}

void export_places(Hdf5File const& file, std::filesystem::path const& path,
                   std::vector<TensorPlace> const& places, std::string_view of_what,
                   runtime::TensorMetadata const& metadata, std::filesystem::path const& output) {
  std::set<std::string> exported;
  for (auto const& place : places) {
    if (place.array.empty()) continue;
    exported.insert(place.array);
    if (!file.contains(place.array) || file.extents(place.array) != place.extents)
      throw_user("{}: {} is missing, or does not fit the other weights", path.string(), place.array);
  }
  for (auto const& name : file.array_names()) {
    auto const full = name.starts_with('/') ? name : "/" + name;
    if (full.starts_with(array_of("")) && !exported.contains(full))
      throw_user("{} has {}, which {} of PyTorch Geometric does not have: h5py reads the weights as they are",
                 path.string(), full, of_what);
  }
  if (file.type(places.front().array) == runtime::Hdf5Type::float64)
    write_tensors<double>(file, places, metadata, output);
  else
    write_tensors<float>(file, places, metadata, output);
}

} // namespace orthant::models
