// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/peft_adapters.hpp"

#include "models/lm/adapters/adapter_plan.hpp"
#include "models/lm/files/hf_parts.hpp"
#include "models/lm/files/hf_weights.hpp"
#include "models/parameters/weights_file.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/safetensors.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace orthant::models {
namespace {

using runtime::Hdf5File, runtime::Tensor, runtime::TensorType;

/// One factor of the adapter of one tensor of Hugging Face.
struct PeftFactor {
  Tensor tensor;
  Part const* part = nullptr;
  std::string of_tensor;           // the adapted matrix
  std::vector<std::int64_t> ranks; // rows of our B, and columns of our A
  bool is_left = true;
};

/// Name of a factor: "h.0.attn.c_attn.lora_A" for the weight "h.0.attn.c_attn.weight".
std::string factor_of(std::string const& weight, bool is_left) {
  return weight.substr(0, weight.rfind('.')) + (is_left ? ".lora_A" : ".lora_B");
}

/// Numbers of the adapters that change columns of `tensor`.
std::set<std::int32_t> slots_of(Part const& part, std::string const& tensor, AdaptedColumns const& adapted) {
  std::set<std::int32_t> slots;
  for (auto const& columns : part.columns)
    for (std::int64_t k = 0; columns.tensor == tensor && k < columns.count; ++k) {
      auto const column = static_cast<std::size_t>(columns.our_first + k * columns.our_step);
      if (auto const slot = adapted.slots[column % adapted.slots.size()]; slot >= 0) slots.insert(slot);
    }
  return slots;
}

std::vector<PeftFactor> factors_of(std::vector<Part> const& parts, TransformerSettings const& settings,
                                   TensorType type) {
  std::vector<PeftFactor> factors;
  auto const rank = settings.adapters.rank;
  for (auto const& part : parts) {
    auto const adapted = adapted_columns(settings, part.parameter);
    if (!adapted) continue;
    std::set<std::string> tensors;
    for (auto const& columns : part.columns)
      tensors.insert(columns.tensor);
    for (auto const& tensor : tensors) {
      std::vector<std::int64_t> ranks;
      for (auto const slot : slots_of(part, tensor, *adapted))
        for (std::int64_t k = 0; k < rank; ++k)
          ranks.push_back(slot * rank + k);
      if (ranks.empty()) continue;
      std::int64_t width = 0;
      for (auto const& columns : part.columns)
        if (columns.tensor == tensor) width += columns.count;
      auto const name = "base_model.model." + tensor.substr(0, tensor.rfind('.'));
      auto const num_ranks = std::ssize(ranks);
      factors.push_back(
          {{name + ".lora_A.weight", type, {num_ranks, part.extents[0]}}, &part, tensor, ranks, true});
      factors.push_back({{name + ".lora_B.weight", type, {width, num_ranks}}, &part, tensor, ranks, false});
    }
  }
  std::ranges::sort(factors, {}, [](PeftFactor const& factor) { return factor.tensor.name; });
  return factors;
}

template<class T>
std::vector<T> numbers_of(Hdf5File const& file, PeftFactor const& factor) {
  auto const array = array_of(factor_of(factor.part->parameter, factor.is_left));
  auto const extents = file.extents(array);
  std::vector<T> ours(static_cast<std::size_t>(extents[0] * extents[1]));
  file.read(array, {0, 0}, extents, std::span<T>(ours));
  auto const ours_at = [&](std::int64_t i, std::int64_t j) {
    return ours[static_cast<std::size_t>(i * extents[1] + j)];
  };
  auto const num_ranks = std::ssize(factor.ranks);
  std::vector<T> theirs(static_cast<std::size_t>(factor.tensor.num_elements()));
  if (factor.is_left) {
    for (std::int64_t r = 0; r < num_ranks; ++r)
      for (std::int64_t i = 0; i < extents[0]; ++i)
        theirs[static_cast<std::size_t>(r * extents[0] + i)] =
            ours_at(i, factor.ranks[static_cast<std::size_t>(r)]);
    return theirs;
  }
  for (auto const& columns : factor.part->columns)
    for (std::int64_t k = 0; columns.tensor == factor.of_tensor && k < columns.count; ++k)
      for (std::int64_t r = 0; r < num_ranks; ++r)
        theirs[static_cast<std::size_t>((columns.their_first + k) * num_ranks + r)] =
            ours_at(factor.ranks[static_cast<std::size_t>(r)], columns.our_first + k * columns.our_step);
  return theirs;
}

template<class T>
void write_factors(Hdf5File const& file, std::vector<PeftFactor> const& factors,
                   std::filesystem::path const& path) {
  std::vector<Tensor> tensors;
  for (auto const& factor : factors)
    tensors.push_back(factor.tensor);
  runtime::write_safetensors<T>(path, tensors, {{"format", "pt"}},
                                [&](std::size_t i) { return numbers_of<T>(file, factors[i]); });
}

/// adapter_config.json. Modules are named by the last two parts of their names, because GPT-2 has two c_proj.
std::string config_text(std::vector<PeftFactor> const& factors, TransformerSettings const& settings,
                        bool is_gpt2) {
  auto const& adapters = settings.adapters;
  std::set<std::string> modules;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::object(), alphas = ranks;
  for (auto const& factor : factors) {
    auto const stem = factor.of_tensor.substr(0, factor.of_tensor.rfind('.'));
    auto const module = stem.substr(stem.rfind('.', stem.rfind('.') - 1) + 1);
    modules.insert(module);
    if (auto const num_ranks = std::ssize(factor.ranks); num_ranks != adapters.rank) {
      ranks[module] = num_ranks;
      alphas[module] = adapters.scale() * static_cast<double>(num_ranks);
    }
  }
  return nlohmann::ordered_json{{"peft_type", "LORA"},       {"task_type", "CAUSAL_LM"},
                                {"r", adapters.rank},        {"lora_alpha", adapters.alpha},
                                {"lora_dropout", 0.0},       {"target_modules", modules},
                                {"rank_pattern", ranks},     {"alpha_pattern", alphas},
                                {"fan_in_fan_out", is_gpt2}, {"bias", "none"},
                                {"inference_mode", true}}
             .dump(2) +
         "\n";
}

/// The adapters that a weights file records.
AdapterSettings read_adapters(Hdf5File const& file, std::filesystem::path const& weights) {
  if (!file.contains_attribute("/", "lora_rank"))
    runtime::throw_user("'{}' has no adapters; train-lm --lora-rank trains some", weights.string());
  AdapterSettings adapters;
  try {
    adapters.rank = std::stoll(file.read_text("/", "lora_rank"));
    adapters.alpha = std::stod(file.read_text("/", "lora_alpha"));
  } catch (std::logic_error const&) {
    runtime::throw_user("'{}' is damaged: what it says of its adapters cannot be read", weights.string());
  }
  std::istringstream targets(file.read_text("/", "lora_targets"));
  for (std::string target; std::getline(targets, target, ',');)
    adapters.targets.push_back(target);
  return adapters;
}

} // namespace

void export_peft_adapters(runtime::Communicator const& comm, std::filesystem::path const& weights,
                          TransformerSettings const& model, std::filesystem::path const& output) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = Hdf5File::open(weights);
    auto settings = model;
    settings.adapters = read_adapters(file, weights);
    require_valid(settings);
    auto const family = family_of(settings);
    auto const is_double = file.type(array_of("wte.weight")) == runtime::Hdf5Type::float64;
    auto const parts = parts_of(family, settings);
    auto const factors = factors_of(parts, settings, is_double ? TensorType::float64 : TensorType::float32);
    make_empty_folder(output);
    if (is_double)
      write_factors<double>(file, factors, output / "adapter_model.safetensors");
    else
      write_factors<float>(file, factors, output / "adapter_model.safetensors");
    std::ofstream config(output / "adapter_config.json");
    config << config_text(factors, settings, family == HfFamily::gpt2);
    if (!config.flush())
      runtime::throw_user("export-weights: '{}' cannot be written",
                          (output / "adapter_config.json").string());
  });
}

} // namespace orthant::models
