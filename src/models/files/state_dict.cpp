// SPDX-License-Identifier: Apache-2.0
#include "models/files/state_dict.hpp"

#include "models/core/weights_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "runtime/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::SafetensorsFile;
using runtime::Tensor;
using runtime::TensorType;
using runtime::throw_user;

/// Names with a layer's number where the * is.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> names{
    {{"layer*.weight", "convs.*.lin.weight"},
     {"layer*.bias", "convs.*.bias"},
     {"layer*.norm", "norms.*.weight"},
     {"input.weight", "lin_in.weight"},
     {"input.bias", "lin_in.bias"},
     {"head.weight", "lin_out.weight"},
     {"head.bias", "lin_out.bias"}}};

/// What a weights file records and the tensors do not show.
constexpr std::array unseen_parts{"residual", "feature_norm", "dense_libraries"};

/// `name` in the form of `to` if it has the form of `from`.
std::optional<std::string> rename(std::string_view name, std::string_view from, std::string_view to) {
  auto const star = from.find('*');
  if (star == std::string_view::npos) return name == from ? std::optional<std::string>(to) : std::nullopt;
  auto const before = from.substr(0, star);
  auto const after = from.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  auto const number = name.substr(before.size(), name.size() - before.size() - after.size());
  if (!std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  std::string renamed(to);
  return renamed.replace(renamed.find('*'), 1, number);
}

template<class T>
std::vector<T> transposed(std::vector<T> const& matrix, std::int64_t num_rows, std::int64_t num_columns) {
  std::vector<T> result(matrix.size());
  for (std::int64_t i = 0; i < num_rows; ++i)
    for (std::int64_t j = 0; j < num_columns; ++j)
      result[static_cast<std::size_t>(j * num_rows + i)] =
          matrix[static_cast<std::size_t>(i * num_columns + j)];
  return result;
}

template<class T>
void write_tensors(Hdf5File const& file, std::vector<std::string> const& parameters,
                   runtime::TensorMetadata const& about, std::filesystem::path const& output) {
  std::vector<Tensor> tensors;
  for (auto const& parameter : parameters) {
    auto shape = file.extents(array_of(parameter));
    std::ranges::reverse(shape);
    tensors.push_back({torch_name_of(parameter).value(),
                       sizeof(T) == 4 ? TensorType::float32 : TensorType::float64, std::move(shape)});
  }
  runtime::write_safetensors<T>(output, tensors, about, [&](std::size_t i) {
    auto numbers = file.read_all<T>(array_of(parameters[i]));
    auto const& shape = tensors[i].shape;
    return shape.size() == 2 ? transposed(numbers, shape[1], shape[0]) : numbers;
  });
}

/// The parameters of a weights file.
std::vector<std::string> parameters_in(Hdf5File const& file, std::filesystem::path const& path) {
  std::vector<std::string> parameters;
  auto const prefix = array_of("");
  for (auto const& array : file.array_names()) {
    auto const full = array.starts_with('/') ? array : "/" + array;
    if (!full.starts_with(prefix)) continue;
    auto name = full.substr(prefix.size());
    if (name == "features")
      throw_user("{} has features that were trained: their rows are in the order of a store, so they are not "
                 "exported",
                 path.string());
    auto const num_dimensions = file.extents(array).size();
    if (!torch_name_of(name) || num_dimensions < 1 || num_dimensions > 2)
      throw_user("{}: {} is no parameter of a GCN", path.string(), full);
    parameters.push_back(std::move(name));
  }
  if (parameters.empty()) throw_user("{} holds no weights: there is nothing under {}", path.string(), prefix);
  return parameters;
}

runtime::TensorMetadata metadata_of(Hdf5File const& file) {
  runtime::TensorMetadata metadata{{"format", "pt"}};
  for (auto const* const part : {"model", "layers", "norm", "residual", "input_projection", "head", "bias",
                                 "feature_norm", "dense_libraries"})
    if (file.contains_attribute("/", part)) metadata[part] = file.read_text("/", part);
  return metadata;
}

/// Shapes by our names, as a weights file has them, checked to be those of one network.
class ImportedShapes {
 public:
  ImportedShapes(SafetensorsFile const& file, std::string path) : path_(std::move(path)) {
    for (auto const& tensor : file.tensors()) {
      auto const parameter = parameter_of_torch(tensor.name);
      if (!parameter)
        throw_user(
            "{}: '{}' is no parameter of a GCN; known are convs.L.lin.weight, convs.L.bias, norms.L.weight, "
            "lin_in and lin_out",
            path_, tensor.name);
      auto shape = tensor.shape;
      std::ranges::reverse(shape);
      auto const is_weight = parameter->ends_with(".weight");
      if (shape.size() != (is_weight ? 2U : 1U) || std::ranges::find(shape, 0) != shape.end())
        throw_user("{}: '{}' is no {}", path_, tensor.name, is_weight ? "matrix" : "vector");
      shapes_[*parameter] = std::move(shape);
    }
    require_one_network();
  }

  [[nodiscard]] std::map<std::string, std::vector<std::int64_t>> const& all() const { return shapes_; }
  [[nodiscard]] bool contains(std::string const& parameter) const { return shapes_.contains(parameter); }
  [[nodiscard]] std::int64_t num_layers() const { return num_layers_; }

 private:
  void require_one_network() {
    auto width = std::int64_t{0}; // of what goes into the next part; 0: any
    auto num_found = std::size_t{0};
    auto const has_bias = contains("layer0.bias");
    auto const follow = [&](std::string const& part) {
      auto const weight = shapes_.find(part + ".weight");
      if (weight == shapes_.end()) return false;
      if (width != 0 && weight->second[0] != width)
        throw_user("{}: {} takes {} columns, but the part before it gives {}", path_, torch(part + ".weight"),
                   weight->second[0], width);
      width = weight->second[1];
      ++num_found;
      if (contains(part + ".bias") != has_bias)
        throw_user("{}: either all parts have a bias or none; {} is {}", path_, torch(part + ".bias"),
                   has_bias ? "missing" : "there");
      for (auto const* const vector : {".bias", ".norm"})
        if (auto const found = shapes_.find(part + vector); found != shapes_.end()) {
          if (found->second[0] != width)
            throw_user("{}: {} has {} numbers, not {}", path_, torch(part + vector), found->second[0], width);
          ++num_found;
        }
      return true;
    };
    follow("input");
    while (follow("layer" + std::to_string(num_layers_)))
      ++num_layers_;
    if (num_layers_ == 0) throw_user("{}: there is no {}", path_, torch("layer0.weight"));
    follow("head");
    if (num_found != shapes_.size())
      throw_user("{}: it has parameters of more layers than the {} that follow one another from convs.0",
                 path_, num_layers_);
  }
  static std::string torch(std::string const& parameter) { return torch_name_of(parameter).value(); }

  std::string path_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::int64_t num_layers_ = 0;
};

Architecture architecture_of(ImportedShapes const& shapes, runtime::TensorMetadata const& metadata) {
  auto const yes_or_no = [](bool has_it) { return std::string(has_it ? "yes" : "no"); };
  Architecture architecture{{"model", "gcn"},
                            {"layers", std::to_string(shapes.num_layers())},
                            {"norm", shapes.contains("layer0.norm") ? "rms" : "none"},
                            {"input_projection", yes_or_no(shapes.contains("input.weight"))},
                            {"head", yes_or_no(shapes.contains("head.weight"))},
                            {"bias", yes_or_no(shapes.contains("layer0.bias"))},
                            {"trained_features", "no"}};
  for (auto const* const part : unseen_parts)
    if (auto const found = metadata.find(part); found != metadata.end()) architecture.push_back(*found);
  return architecture;
}

template<class T>
void write_weights(runtime::Communicator const& comm, SafetensorsFile const& tensors,
                   ImportedShapes const& shapes, std::filesystem::path const& output) {
  runtime::Hdf5Output file(comm, output, "weights");
  for (auto const& [parameter, extents] : shapes.all())
    file.create_array(array_of(parameter), runtime::detail::hdf5_type_of<T>(), extents);
  for (auto const& [part, value] : architecture_of(shapes, tensors.metadata()))
    file.write_attribute("/", part, value);
  file.reserve_space();
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    for (auto const& [parameter, extents] : shapes.all()) {
      auto numbers = tensors.read<T>(torch_name_of(parameter).value());
      if (extents.size() == 2) numbers = transposed(numbers, extents[1], extents[0]);
      file.write(array_of(parameter), Hdf5File::Extents(extents.size(), 0), extents,
                 std::span<T const>(numbers));
    }
  });
  file.publish();
}

} // namespace

std::optional<std::string> torch_name_of(std::string const& parameter) {
  for (auto const& [ours, torch] : names)
    if (auto renamed = rename(parameter, ours, torch)) return renamed;
  return std::nullopt;
}

std::optional<std::string> parameter_of_torch(std::string const& name) {
  for (auto const& [ours, torch] : names)
    if (auto renamed = rename(name, torch, ours)) return renamed;
  return std::nullopt;
}

void export_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                    std::filesystem::path const& output) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = Hdf5File::open(weights);
    auto const parameters = parameters_in(file, weights);
    auto const is_double = std::ranges::any_of(parameters, [&](std::string const& parameter) {
      return file.type(array_of(parameter)) == runtime::Hdf5Type::float64;
    });
    if (is_double)
      write_tensors<double>(file, parameters, metadata_of(file), output);
    else
      write_tensors<float>(file, parameters, metadata_of(file), output);
  });
}

void import_weights(runtime::Communicator const& comm, std::filesystem::path const& tensors,
                    std::filesystem::path const& output) {
  // Every rank reads the header, so that all make the same file.
  auto const file = runtime::together(comm, [&] { return SafetensorsFile(tensors); });
  auto const shapes = runtime::together(comm, [&] { return ImportedShapes(file, tensors.string()); });
  auto const is_double = std::ranges::any_of(
      file.tensors(), [](Tensor const& tensor) { return tensor.type == TensorType::float64; });
  if (is_double)
    write_weights<double>(comm, file, shapes, output);
  else
    write_weights<float>(comm, file, shapes, output);
}

} // namespace orthant::models
