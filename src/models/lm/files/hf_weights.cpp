// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/hf_weights.hpp"

#include "models/lm/files/hf_parts.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "runtime/files/safetensors.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

namespace orthant::models {
namespace {

using runtime::Hdf5File, runtime::SafetensorsFile, runtime::Tensor, runtime::throw_user;

/// The tensors of a folder.
class TensorFolder {
 public:
  static constexpr auto settings_name = "config.json"; // for messages

  explicit TensorFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
    auto const index = folder_ / "model.safetensors.index.json";
    if (!std::filesystem::exists(index)) {
      add_file("model.safetensors");
      return;
    }
    std::ifstream in(index);
    auto const json = nlohmann::json::parse(in, nullptr, false);
    if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object())
      throw_user("{}: it is no index of shards: an object weight_map is missing", index.string());
    std::set<std::string> names;
    for (auto const& [tensor, file] : json.at("weight_map").items()) {
      if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
        throw_user("{}: {} is in {}, which is no name of a file", index.string(), tensor, file.dump());
      names.insert(file.get<std::string>());
    }
    for (auto const& name : names)
      add_file(name);
    for (auto const& [tensor, file] : json.at("weight_map").items())
      if (!places_.contains(tensor))
        throw_user("{}: {} has no tensor {}", index.string(), file.get<std::string>(), tensor);
  }

  /// The tensor, or null. GPT-2's first files have names without "transformer.".
  [[nodiscard]] Tensor const* find(std::string const& name) const {
    auto const found = places_.find(named(name));
    return found == places_.end() ? nullptr : &found->second.tensor;
  }
  template<class T>
  [[nodiscard]] std::vector<T> read(std::string const& name, runtime::Range range) const {
    auto const& place = places_.at(named(name));
    return files_[place.file]->read<T>(place.tensor.name, range);
  }
  [[nodiscard]] bool has_doubles() const {
    return std::ranges::any_of(
        places_, [](auto const& place) { return place.second.tensor.type == runtime::TensorType::float64; });
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (auto const& [name, place] : places_)
      all.push_back(name);
    return all;
  }
  [[nodiscard]] std::string named(std::string const& name) const {
    constexpr std::string_view prefix = "transformer.";
    if (!places_.contains(name) && name.starts_with(prefix)) return name.substr(prefix.size());
    return name;
  }

 private:
  struct Place {
    Tensor tensor;
    std::size_t file;
  };
  void add_file(std::string const& name) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
    for (auto const& tensor : files_.back()->tensors())
      if (!places_.emplace(tensor.name, Place{tensor, files_.size() - 1}).second)
        throw_user("{}: the tensor {} is in another shard, too", (folder_ / name).string(), tensor.name);
  }

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

/// Buffers that older versions saved: masks, and frequencies of rotary positions.
bool is_buffer(std::string const& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

template<class Tensors>
void require_tensors(std::filesystem::path const& folder, Tensors const& tensors,
                     std::vector<Part> const& parts, bool tied_head) {
  std::set<std::string> wanted;
  for (auto const& part : parts)
    for (auto const& columns : part.columns) {
      auto const* const tensor = tensors.find(columns.tensor);
      if (tensor == nullptr) throw_user("{}: there is no tensor {}", folder.string(), columns.tensor);
      if (auto const shape = their_shape(part, columns.tensor); tensor->shape != shape)
        throw_user("{}: {} has the shape [{}], but {} needs [{}]", folder.string(), columns.tensor,
                   fmt::join(tensor->shape, ", "), Tensors::settings_name, fmt::join(shape, ", "));
      wanted.insert(tensors.named(columns.tensor));
    }
  for (auto const& name : tensors.names())
    if (!wanted.contains(name) && !is_buffer(name) && !(tied_head && name == "lm_head.weight"))
      throw_user("{}: the tensor {} belongs to no part of the model that {} describes", folder.string(), name,
                 Tensors::settings_name);
}

template<class T, class Tensors>
void write_parts(runtime::Communicator const& comm, Tensors const& tensors, std::vector<Part> const& parts,
                 std::filesystem::path const& output, Architecture const& architecture,
                 std::string const& tokenizer) {
  runtime::Hdf5Output file(comm, output, "weights");
  for (auto const& part : parts)
    file.create_array(array_of(part.parameter), runtime::detail::hdf5_type_of<T>(), part.extents);
  for (auto const& [name, value] : architecture)
    file.write_attribute("/", name, value);
  Hdf5File::Extents const length{std::ssize(tokenizer)};
  if (!tokenizer.empty()) file.create_array(tokens::tokenizer_array, runtime::Hdf5Type::uint8, length);
  file.reserve_space();
  runtime::together(comm, [&] {
    if (comm.is_root() && !tokenizer.empty()) {
      std::vector<std::uint8_t> const bytes(tokenizer.begin(), tokenizer.end());
      file.write(tokens::tokenizer_array, {0}, length, std::span<std::uint8_t const>(bytes));
    }
    auto const read = [&](std::string const& tensor, runtime::Range range) {
      return tensors.template read<T>(tensor, range);
    };
    auto const pieces = pieces_of(parts);
    for (auto i = static_cast<std::size_t>(comm.rank()); i < pieces.size();
         i += static_cast<std::size_t>(comm.size())) {
      auto const& [part, rows, columns] = pieces[i];
      auto const ours = read_piece<T>(pieces[i], read);
      auto const is_vector = part->extents.size() == 1;
      file.write(array_of(part->parameter),
                 is_vector ? Hdf5File::Extents{columns.begin} : Hdf5File::Extents{rows.begin, columns.begin},
                 is_vector ? Hdf5File::Extents{columns.size()}
                           : Hdf5File::Extents{rows.size(), columns.size()},
                 std::span<T const>(ours));
    }
  });
  file.publish();
}

template<class Tensors>
void import_tensors(runtime::Communicator const& comm, std::filesystem::path const& model,
                    HfConfig const& config, Tensors const& tensors, std::filesystem::path const& output,
                    Architecture const& architecture, std::string const& tokenizer) {
  auto const parts = parts_of(config.family, config.settings);
  runtime::together(comm, [&] { require_tensors(model, tensors, parts, config.settings.tied_head); });
  if (tensors.has_doubles())
    write_parts<double>(comm, tensors, parts, output, architecture, tokenizer);
  else
    write_parts<float>(comm, tensors, parts, output, architecture, tokenizer);
}

} // namespace

void import_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& model,
                       HfConfig const& config, std::filesystem::path const& output,
                       Architecture const& architecture, std::string const& tokenizer) {
  // Every rank reads the headers, because all ranks create the weights file together and need all shapes.
  auto const tensors = runtime::together(comm, [&] { return std::make_unique<TensorFolder>(model); });
  import_tensors(comm, model, config, *tensors, output, architecture, tokenizer);
}

void import_gguf_weights(runtime::Communicator const& comm, std::filesystem::path const& path,
                         GgufModel const& model, std::filesystem::path const& output,
                         Architecture const& architecture) {
  import_tensors(comm, path, model.config(), model, output, architecture, model.tokenizer());
}

namespace {

constexpr std::int64_t most_bytes_of_shard = 5'000'000'000;

/// A tensor to be written, with the part and the columns from which it is made.
struct Written {
  Tensor tensor;
  Part const* part = nullptr;
};

std::vector<Written> tensors_of(std::vector<Part> const& parts, runtime::TensorType type) {
  std::map<std::string, Written> all; // in the order of their names
  for (auto const& part : parts)
    for (auto const& columns : part.columns)
      all.try_emplace(columns.tensor,
                      Written{{columns.tensor, type, their_shape(part, columns.tensor)}, &part});
  std::vector<Written> list;
  for (auto& [name, written] : all)
    list.push_back(std::move(written));
  return list;
}

template<class T>
std::vector<T> rows_of(Hdf5File const& file, Written const& written, runtime::Range rows) {
  auto const& part = *written.part;
  auto const read = [&](std::string const& parameter, runtime::Range our_rows, runtime::Range columns) {
    std::vector<T> numbers(static_cast<std::size_t>(our_rows.size() * columns.size()));
    if (part.extents.size() == 1)
      read_merged(file, parameter, {columns.begin}, {columns.size()}, std::span<T>(numbers));
    else
      read_merged(file, parameter, {our_rows.begin, columns.begin}, {our_rows.size(), columns.size()},
                  std::span<T>(numbers));
    return numbers;
  };
  return read_their_rows<T>(part, written.tensor.name, rows, read);
}

template<class T>
void write_shards(Hdf5File const& file, std::vector<Written> const& all,
                  std::filesystem::path const& output) {
  std::vector<std::vector<Written>> shards(1);
  std::int64_t bytes = 0, total = 0;
  for (auto const& written : all) {
    auto const its = written.tensor.num_elements() * std::int64_t{sizeof(T)};
    if (bytes > 0 && bytes + its > most_bytes_of_shard) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += its;
    total += its;
    shards.back().push_back(written);
  }
  nlohmann::ordered_json map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    auto const name = shards.size() == 1
                          ? std::string("model.safetensors")
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<Tensor> tensors;
    for (auto const& written : shards[i]) {
      tensors.push_back(written.tensor);
      map[written.tensor.name] = name;
    }
    runtime::write_safetensors<T>(
        output / name, tensors, {{"format", "pt"}},
        [&](std::size_t k, runtime::Range rows) { return rows_of<T>(file, shards[i][k], rows); });
  }
  if (shards.size() == 1) return;
  std::ofstream index(output / "model.safetensors.index.json");
  index << nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) << "\n";
  if (!index.flush()) throw_user("{}: the index of its shards cannot be written", output.string());
}

} // namespace

void make_empty_folder(std::filesystem::path const& output) {
  if (std::filesystem::exists(output) &&
      (!std::filesystem::is_directory(output) || !std::filesystem::is_empty(output)))
    throw_user("export-weights: '{}' is not an empty folder; name a new one", output.string());
  std::error_code error;
  std::filesystem::create_directories(output, error);
  if (error) throw_user("export-weights: '{}' cannot be made: {}", output.string(), error.message());
}

void export_hf_weights(runtime::Communicator const& comm, std::filesystem::path const& weights,
                       TransformerSettings const& settings, std::filesystem::path const& output) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const family = family_of(settings);
    auto const file = Hdf5File::open(weights);
    auto const is_double = file.type(array_of("wte.weight")) == runtime::Hdf5Type::float64;
    auto const parts = parts_of(family, settings);
    auto const text = hf_config_text(settings, is_double ? "float64" : "float32");
    make_empty_folder(output);
    if (is_double)
      write_shards<double>(file, tensors_of(parts, runtime::TensorType::float64), output);
    else
      write_shards<float>(file, tensors_of(parts, runtime::TensorType::float32), output);
    if (file.contains(tokens::tokenizer_array)) {
      auto const bytes = file.read_all<std::uint8_t>(tokens::tokenizer_array);
      std::ofstream tokenizer(output / "tokenizer.json", std::ios::binary);
      tokenizer << std::string(bytes.begin(), bytes.end());
      if (!tokenizer.flush())
        throw_user("export-weights: '{}' cannot be written", (output / "tokenizer.json").string());
    }
    std::ofstream config(output / "config.json"); // last, so that an incomplete folder is not a model
    config << text;
    if (!config.flush())
      throw_user("export-weights: '{}' cannot be written", (output / "config.json").string());
  });
}

} // namespace orthant::models
