// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/state_dict.hpp"

#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/files/state_dict_parts.hpp"
#include "models/parameters/weights_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "runtime/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <string_view>
#include <utility>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::Hdf5Type;
using runtime::SafetensorsFile;
using runtime::Tensor;
using runtime::TensorType;
using runtime::throw_user;

using Name = std::pair<std::string_view, std::string_view>;

/// Names of parameters, with * for the number of the layer. The head is the second linear layer of GIN's last perceptron.
constexpr std::array<Name, 2> names_of_gcn{
    {{"layer*.weight", "convs.*.lin.weight"}, {"layer*.bias", "convs.*.bias"}}};
constexpr std::array<Name, 3> names_of_sage{{{"layer*.weight", "convs.*.lin_l.weight"},
                                             {"layer*.bias", "convs.*.lin_l.bias"},
                                             {"layer*.self_weight", "convs.*.lin_r.weight"}}};
constexpr std::array<Name, 3> names_of_graphconv{{{"layer*.weight", "convs.*.lin_rel.weight"},
                                                  {"layer*.bias", "convs.*.lin_rel.bias"},
                                                  {"layer*.self_weight", "convs.*.lin_root.weight"}}};
constexpr std::array<Name, 5> names_of_gin{{{"layer*.weight", "convs.*.nn.lins.0.weight"},
                                            {"layer*.bias", "convs.*.nn.lins.0.bias"},
                                            {"layer*.second.weight", "convs.*.nn.lins.1.weight"},
                                            {"layer*.second.bias", "convs.*.nn.lins.1.bias"},
                                            {"layer*.epsilon", "convs.*.eps"}}};
constexpr std::array<Name, 5> names_of_all{{{"input.weight", "lin_in.weight"},
                                            {"input.bias", "lin_in.bias"},
                                            {"layer*.residual.weight", "residuals.*.weight"},
                                            {"head.weight", "lin_out.weight"},
                                            {"head.bias", "lin_out.bias"}}};
/// PyTorch Geometric's BatchNorm contains PyTorch's BatchNorm as `module`.
constexpr std::array<Name, 2> names_of_norm{
    {{"layer*.norm", "norms.*.weight"}, {"layer*.norm_shift", "norms.*.bias"}}};
constexpr std::array<Name, 4> names_of_batch_norm{{{"layer*.norm", "norms.*.module.weight"},
                                                   {"layer*.norm_shift", "norms.*.module.bias"},
                                                   {"layer*.norm_mean", "norms.*.module.running_mean"},
                                                   {"layer*.norm_variance", "norms.*.module.running_var"}}};

constexpr std::array models_with_names{Model::gcn, Model::sage, Model::graphconv, Model::gin};

std::vector<Name> names_of(Model model, Norm norm) {
  std::vector<Name> names(names_of_all.begin(), names_of_all.end());
  auto const append = [&](auto const& more) { names.insert(names.end(), more.begin(), more.end()); };
  if (norm == Norm::batch)
    append(names_of_batch_norm);
  else
    append(names_of_norm);
  if (model == Model::gcn) append(names_of_gcn);
  if (model == Model::sage) append(names_of_sage);
  if (model == Model::graphconv) append(names_of_graphconv);
  if (model == Model::gin) append(names_of_gin);
  return names;
}

/// Model by the names of the arrays: only SAGE and GraphConv, which have the same arrays, have self weights, and only GIN has epsilon.
template<class Contains>
Model model_of(Contains const& contains) {
  return contains("layer0.self_weight") ? Model::sage : contains("layer0.epsilon") ? Model::gin : Model::gcn;
}
/// Norm by the names of the arrays: only centered norms have a shift, and only BatchNorm has statistics.
template<class Contains>
Norm norm_of(Contains const& contains) {
  return contains("layer0.norm_mean")    ? Norm::batch
         : contains("layer0.norm_shift") ? Norm::layer
         : contains("layer0.norm")       ? Norm::rms
                                         : Norm::none;
}
template<class Contains>
std::int64_t num_layers_of(Contains const& contains) {
  std::int64_t count = 0;
  while (contains(fmt::format("layer{}.weight", count)))
    ++count;
  return count;
}
std::string second_of_last(std::int64_t num_layers, std::string_view leaf) {
  return fmt::format("layer{}.second.{}", num_layers - 1, leaf);
}

/// Converts `name` from the pattern `from` to the pattern `to`; nullopt if it does not match.
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

/// Names of the parameters of one network.
struct TorchNames {
  Model model = Model::gcn;
  std::int64_t num_layers = 0;
  Norm norm = Norm::none;

  [[nodiscard]] std::optional<std::string> of(std::string const& parameter) const {
    return torch_name_of(parameter, model, num_layers, norm);
  }
};

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
void write_tensors(Hdf5File const& file, std::vector<std::string> const& parameters, TorchNames const& names,
                   runtime::TensorMetadata const& about, std::filesystem::path const& output) {
  std::vector<Tensor> tensors;
  for (auto const& parameter : parameters) {
    auto shape = file.extents(array_of(parameter));
    std::ranges::reverse(shape);
    tensors.push_back({names.of(parameter).value(),
                       sizeof(T) == 4 ? TensorType::float32 : TensorType::float64, std::move(shape)});
  }
  runtime::write_safetensors<T>(output, tensors, about, [&](std::size_t i) {
    auto numbers = file.read_all<T>(array_of(parameters[i]));
    auto const& shape = tensors[i].shape;
    return shape.size() == 2 ? transposed(numbers, shape[1], shape[0]) : numbers;
  });
}

/// Names of the parameters in a weights file.
std::vector<std::string> parameters_in(Hdf5File const& file, std::filesystem::path const& path,
                                       TorchNames const& names) {
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
    if (name.starts_with("decoder."))
      throw_user(
          "{} has a perceptron that scores links, which has no names in PyTorch Geometric, so it is not "
          "exported",
          path.string());
    if (name.starts_with("h.") || name.starts_with("wte."))
      throw_user("{} holds weights of a language model; --format hf exports them", path.string());
    auto const num_dimensions = file.extents(array).size();
    if (!names.of(name) || num_dimensions < 1 || num_dimensions > 2)
      throw_user("{}: {} is no parameter of a graph network", path.string(), full);
    parameters.push_back(std::move(name));
  }
  if (parameters.empty()) throw_user("{} holds no weights: there is nothing under {}", path.string(), prefix);
  return parameters;
}

runtime::TensorMetadata metadata_of(Hdf5File const& file) {
  runtime::TensorMetadata metadata{{"format", "pt"}};
  auto const add = [&](auto const& names) {
    for (auto const* const part : names)
      if (file.contains_attribute("/", part)) metadata[part] = file.read_text("/", part);
  };
  add(std::array{"model", "layers", "norm", "input_projection", "head", "bias"});
  add(unseen_parts);
  return metadata;
}

/// Shapes of the imported parameters by our names, in the layout of a weights file. Checks that they belong to one network.
class ImportedShapes {
 public:
  ImportedShapes(SafetensorsFile const& file, std::string path) : path_(std::move(path)) {
    for (auto const& tensor : file.tensors()) {
      auto const parameter = parameter_of_torch(tensor.name);
      if (!parameter)
        throw_user("{}: '{}' is no parameter of a GCN, of GraphSAGE, of GraphConv or of GIN; known are "
                   "convs.L.lin.weight, convs.L.bias, convs.L.lin_l, convs.L.lin_r.weight, convs.L.lin_rel, "
                   "convs.L.lin_root.weight, convs.L.nn.lins, convs.L.eps, norms.L.weight, "
                   "residuals.L.weight, lin_in and lin_out; with convs.0.att_dst or att, those of attention",
                   path_, tensor.name);
      auto shape = tensor.shape;
      std::ranges::reverse(shape);
      auto const is_weight = parameter->ends_with("weight");
      if (shape.size() != (is_weight ? 2U : 1U) || std::ranges::find(shape, 0) != shape.end())
        throw_user("{}: '{}' is no {}", path_, tensor.name, is_weight ? "matrix" : "vector");
      shapes_[*parameter] = std::move(shape);
    }
    auto const has = [&](std::string const& parameter) { return contains(parameter); };
    names_ = {model_of(has), num_layers_of(has), norm_of(has)};
    auto const is_of_graphconv = [](Tensor const& tensor) {
      return tensor.name.find(".lin_root.") != std::string::npos;
    };
    if (names_.model == Model::sage && std::ranges::any_of(file.tensors(), is_of_graphconv))
      names_.model = Model::graphconv;
    if (names_.model == Model::gin)
      for (auto const* const leaf : {"weight", "bias"})
        if (auto last = shapes_.extract(second_of_last(names_.num_layers, leaf)); !last.empty()) {
          last.key() = fmt::format("head.{}", leaf);
          shapes_.insert(std::move(last));
        }
    require_one_network();
  }

  [[nodiscard]] std::map<std::string, std::vector<std::int64_t>> const& all() const { return shapes_; }
  [[nodiscard]] bool contains(std::string const& parameter) const { return shapes_.contains(parameter); }
  [[nodiscard]] std::int64_t num_layers() const { return names_.num_layers; }
  [[nodiscard]] Model model() const { return names_.model; }
  [[nodiscard]] Norm norm() const { return names_.norm; }
  [[nodiscard]] std::string torch(std::string const& parameter) const { return names_.of(parameter).value(); }

 private:
  void require_one_network() {
    auto width = std::int64_t{0}; // required input width of the next part; 0: any
    auto num_found = std::size_t{0};
    auto const has_bias = contains("layer0.bias");
    auto const follow = [&](std::string const& part) {
      auto const weight = shapes_.find(part + ".weight");
      if (weight == shapes_.end()) return false;
      if (width != 0 && weight->second[0] != width)
        throw_user("{}: {} takes {} columns, but the part before it gives {}", path_, torch(part + ".weight"),
                   weight->second[0], width);
      auto const is_layer = part.starts_with("layer") && !part.ends_with("second");
      if (model() == Model::gin && is_layer) {
        auto const epsilon = shapes_.find(part + ".epsilon");
        if (epsilon == shapes_.end() || epsilon->second[0] != 1)
          throw_user("{}: {} must be there, with one number", path_, torch(part + ".epsilon"));
        ++num_found;
      }
      if (traits_of(model(), Aggregator::mean).has_self_weights && is_layer) {
        auto const own = shapes_.find(part + ".self_weight");
        if (own == shapes_.end() || own->second != weight->second)
          throw_user("{}: {} must be there, as large as {}", path_, torch(part + ".self_weight"),
                     torch(part + ".weight"));
        ++num_found;
      }
      if (auto const map = shapes_.find(part + ".residual.weight"); map != shapes_.end()) {
        if (map->second != weight->second)
          throw_user("{}: {} must be as large as {}", path_, torch(part + ".residual.weight"),
                     torch(part + ".weight"));
        ++num_found;
      }
      width = weight->second[1];
      ++num_found;
      if (contains(part + ".bias") != has_bias)
        throw_user("{}: either all parts have a bias or none; {} is {}", path_, torch(part + ".bias"),
                   has_bias ? "missing" : "there");
      for (auto const* const vector : {".bias", ".norm", ".norm_shift", ".norm_mean", ".norm_variance"})
        if (auto const found = shapes_.find(part + vector); found != shapes_.end()) {
          if (found->second[0] != width)
            throw_user("{}: {} has {} numbers, not {}", path_, torch(part + vector), found->second[0], width);
          ++num_found;
        }
      return true;
    };
    follow("input");
    for (std::int64_t l = 0; l < num_layers(); ++l) {
      follow(fmt::format("layer{}", l));
      auto const needs_second = model() == Model::gin && l + 1 < num_layers();
      if (needs_second && !follow(fmt::format("layer{}.second", l)))
        throw_user("{}: there is no {}", path_, torch(fmt::format("layer{}.second.weight", l)));
    }
    if (num_layers() == 0) throw_user("{}: there is no {}", path_, torch("layer0.weight"));
    if (!follow("head") && model() == Model::gin)
      throw_user("{}: there is no {}", path_, torch("head.weight"));
    if (num_found != shapes_.size())
      throw_user("{}: it has parameters of more layers than the {} that follow one another from convs.0",
                 path_, num_layers());
  }

  std::string path_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  TorchNames names_;
};

Architecture architecture_of(ImportedShapes const& shapes, runtime::TensorMetadata const& metadata) {
  auto const yes_or_no = [](bool has_it) { return std::string(has_it ? "yes" : "no"); };
  Architecture architecture{{"model", std::string(name_of(shapes.model()))},
                            {"layers", std::to_string(shapes.num_layers())},
                            {"norm", std::string(name_of(shapes.norm()))},
                            {"input_projection", yes_or_no(shapes.contains("input.weight"))},
                            {"head", yes_or_no(shapes.contains("head.weight"))},
                            {"bias", yes_or_no(shapes.contains("layer0.bias"))},
                            {"jump", std::string(name_of(JumpKind::none))},
                            {"trained_features", "no"}};
  auto const is_map = [](auto const& shape) { return shape.first.ends_with(".residual.weight"); };
  auto const has_maps = std::ranges::any_of(shapes.all(), is_map);
  if (has_maps) architecture.emplace_back("residual", name_of_residuals(true, true));
  for (std::string_view const part : unseen_parts)
    if (auto const found = metadata.find(std::string(part));
        found != metadata.end() && !(has_maps && part == "residual"))
      architecture.push_back(*found);
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
      auto numbers = tensors.read<T>(shapes.torch(parameter));
      if (extents.size() == 2) numbers = transposed(numbers, extents[1], extents[0]);
      file.write(array_of(parameter), Hdf5File::Extents(extents.size(), 0), extents,
                 std::span<T const>(numbers));
    }
  });
  file.publish();
}

} // namespace

std::optional<std::string> torch_name_of(std::string const& parameter, Model model, std::int64_t num_layers,
                                         Norm norm) {
  for (auto const* const leaf : {"weight", "bias"})
    if (model == Model::gin && parameter == fmt::format("head.{}", leaf))
      return torch_name_of(second_of_last(num_layers, leaf), model, num_layers, norm);
  for (auto const& [ours, torch] : names_of(model, norm))
    if (auto renamed = rename(parameter, ours, torch)) return renamed;
  return std::nullopt;
}

std::optional<std::string> parameter_of_torch(std::string const& name) {
  for (auto const model : models_with_names)
    for (auto const norm : {Norm::layer, Norm::batch})
      for (auto const& [ours, torch] : names_of(model, norm))
        if (auto renamed = rename(name, torch, ours)) return renamed;
  return std::nullopt;
}

void export_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                    std::filesystem::path const& output) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = Hdf5File::open(weights);
    auto const has = [&](std::string const& parameter) { return file.contains(array_of(parameter)); };
    auto const model = recorded_model(file, weights).value_or(model_of(has));
    auto const jump = file.contains_attribute("/", "jump") ? file.read_text("/", "jump") : "none";
    if (jump != "none")
      throw_user("{} has outputs that jump, --jump {}, which are not exported so far: h5py reads the weights "
                 "as they are",
                 weights.string(), jump);
    if (has("layer0.attention")) return export_attention_weights(file, weights, metadata_of(file), output);
    if (traits_of(model, Aggregator::mean).has_relations)
      return export_relation_weights(file, weights, metadata_of(file), output);
    if (std::ranges::find(models_with_names, model) == models_with_names.end())
      throw_user("{}: weights of --model {} have no names of PyTorch Geometric here: export-weights takes "
                 "those of gcn, sage, graphconv, gin, gat, gatv2, rgcn, rsage and rgat",
                 weights.string(), name_of(model));
    TorchNames const names{model, num_layers_of(has), norm_of(has)};
    auto const parameters = parameters_in(file, weights, names);
    auto const is_double = [&](auto const& p) { return file.type(array_of(p)) == Hdf5Type::float64; };
    if (std::ranges::any_of(parameters, is_double))
      return write_tensors<double>(file, parameters, names, metadata_of(file), output);
    write_tensors<float>(file, parameters, names, metadata_of(file), output);
  });
}

void import_weights(runtime::Communicator const& comm, std::filesystem::path const& tensors,
                    std::filesystem::path const& output) {
  // Every rank reads the header, so all create the same file.
  auto const file = runtime::together(comm, [&] { return SafetensorsFile(tensors); });
  if (has_attention_weights(file)) return import_attention_weights(comm, file, tensors, output);
  if (has_relation_weights(file)) return import_relation_weights(comm, file, tensors, output);
  auto const shapes = runtime::together(comm, [&] { return ImportedShapes(file, tensors.string()); });
  if (file.has_float64())
    write_weights<double>(comm, file, shapes, output);
  else
    write_weights<float>(comm, file, shapes, output);
}

} // namespace orthant::models
