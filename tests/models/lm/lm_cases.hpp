#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Small transformers whose parameters, tokens and targets are formulas of global indices (reference.py), and their
// gradients as whole matrices.

#include "models/formula_parameters.hpp"
#include "models/lm/adapters/adapters.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/transformer.hpp"
#include "models/training/trainer.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"
#include "support/test_sources.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace orthant::testing {

struct LmCase {
  models::TransformerSettings settings;
  std::int64_t num_sequences = 8; // of a pass
  std::int64_t sequence = 6;
};

/// The seed of the dropout of reference.py, and the step of its gradients.
inline constexpr std::uint64_t lm_seed = 11;
inline constexpr std::uint64_t lm_step = 5;

/// The test model: 2 layers of width 16, 4 heads, 32 in between, 24 tokens, 8 sequences of 6.
inline LmCase small_gpt() {
  LmCase the_case;
  the_case.settings = models::gpt2_settings(2, 16, 4, 24, 6);
  the_case.settings.feed_forward = 32;
  return the_case;
}

/// Of the folder of reference.py, ORTHANT_LM_REFERENCE_FOLDER.
inline nlohmann::json lm_reference(std::filesystem::path const& folder) {
  return nlohmann::json::parse(std::ifstream(where_sources_lie(folder) / "reference.json"));
}

inline LmCase lm_case(nlohmann::json const& figures) {
  auto const& given = figures.at("settings");
  auto const number = [&](char const* name) { return given.at(name).get<std::int64_t>(); };
  auto const is = [&](char const* name) { return given.at(name).get<bool>(); };
  auto settings = models::gpt2_settings(number("layers"), number("hidden"), number("heads"),
                                        number("vocabulary"), number("max_sequence"));
  settings.num_kv_heads = number("kv_heads");
  settings.feed_forward = number("feed_forward");
  if (is("rotary")) settings.positions = models::Positions::rotary;
  if (is("rms")) settings.norm = models::NormKind::rms;
  if (is("swiglu")) settings.activation = models::FeedForward::swiglu;
  if (given.value("tanh", false)) settings.activation = models::FeedForward::gelu_tanh;
  settings.head_width = given.value("head_width", std::int64_t{0});
  if (given.contains("qk_norm"))
    settings.query_key_norm =
        given.at("qk_norm") == "all" ? models::QueryKeyNorm::all : models::QueryKeyNorm::head;
  if (given.contains("experts")) {
    auto const& experts = given.at("experts");
    settings.experts.num_experts = experts.at("count");
    settings.experts.top_k = experts.at("top_k");
    settings.experts.num_dense = experts.value("dense", std::int64_t{0});
    settings.experts.width = experts.value("width", std::int64_t{0});
    settings.experts.num_shared = experts.value("shared", std::int64_t{0});
    settings.experts.weight_scale = experts.value("scale", 1.0);
    settings.experts.normalizes_weights = false;
  }
  if (given.contains("scaling")) {
    auto const& scaling = given.at("scaling");
    settings.rotary_scaling = pmm::RotaryScaling{scaling.at(0), scaling.at(1), scaling.at(2), scaling.at(3)};
  }
  settings.has_bias = is("bias");
  settings.tied_head = is("tied");
  settings.dropout = given.at("dropout").get<double>();
  return {settings, number("sequences"), number("sequence")};
}

/// Whether heads and sequences can be cut.
inline bool fits(LmCase const& the_case, pmm::GridShape const& shape) {
  auto const [heads, groups] = std::pair(the_case.settings.num_heads, the_case.settings.num_kv_heads);
  auto const is_cut = groups % shape.x == 0 || (shape.x % groups == 0 && heads % shape.x == 0);
  return is_cut && shape.data * shape.expert * shape.z <= the_case.num_sequences;
}

/// All grids of up to 8 ranks; of more, those on which the test model is specified, and one without a data axis or z.
inline std::vector<std::array<int, 4>> lm_grids() {
  if (world_size() > 8) return {{2, 2, 2, 2}, {1, 4, 2, 2}, {1, 4, 4, 1}};
  return grids_4d(world_size());
}

/// This rank's tokens of a batch, and what follows each of them, by sequence and place; with documents, the positions in these of
/// all tokens. `part`: of each sequence that the rank has; by default all of it.
struct LmBatch {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> positions;
  LmBatch(LmCase const& the_case, runtime::Range sequences, std::int64_t batch, pmm::SequencePart part = {}) {
    if (part.length == 0) part.length = the_case.sequence;
    auto const size = the_case.settings.vocabulary;
    for (auto s = sequences.begin; s < sequences.end; ++s) {
      std::vector<std::int64_t> of_sequence;
      for (std::int64_t t = 0; the_case.settings.masks_documents && t < the_case.sequence; ++t)
        of_sequence.push_back(t == 0 || target_of(s, t, batch) % 3 == 0 ? 0 : of_sequence.back() + 1);
      for (std::int64_t i = 0; i < part.length; ++i) {
        auto const t = part.place_of(i);
        auto const token = (s * 31 + t * 7 + s * t * 3 + 1000 * batch) * 7919 + 104729 * t * t;
        auto const target = target_of(s, t, batch);
        tokens.push_back(static_cast<std::int32_t>(token % 100003 % size));
        targets.push_back(target % 10 == 3 ? -1 : static_cast<std::int32_t>(target % size));
      }
      positions.insert(positions.end(), of_sequence.begin(), of_sequence.end());
    }
  }
  [[nodiscard]] std::int64_t num_kept() const {
    return std::count_if(targets.begin(), targets.end(), [](auto target) { return target >= 0; });
  }

 private:
  static std::int64_t target_of(std::int64_t s, std::int64_t t, std::int64_t batch) {
    return ((s * 17 + t * 29 + s * t * 5 + 1000 * batch + 77) * 6007 + 38183 * s * s) % 100003;
  }
};

/// The whole of this rank's pieces of an array, on every rank, copies counted once, addends of batches summed.
template<class T>
Dense whole_of(models::Parameter<T> const& parameter, runtime::Vector<T> const& numbers,
               bool sums_over_batches) {
  auto const is_vector = parameter.is_vector();
  auto const extents = is_vector ? pmm::Extents{1, parameter.vector.length()} : parameter.matrix.extents();
  auto const& grid = is_vector ? parameter.vector.grid() : parameter.matrix.grid();
  Dense whole(extents.rows, extents.columns);
  auto const host = host_copy(numbers);
  auto const counts = is_vector ? parameter.vector.is_first_replica() : parameter.matrix.is_first_replica();
  if (counts && !parameter.is_copy)
    for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
      whole(i, j) += static_cast<double>(host(place));
    });
  runtime::all_reduce(runtime::host, grid.group(), whole.numbers);
  if (grid.size(pmm::Axis::pipe) > 1)
    runtime::all_reduce(runtime::host, grid.over(pmm::Axis::pipe), whole.numbers);
  if (sums_over_batches || parameter.is_of_expert) // of experts, others have other ones
    runtime::all_reduce(runtime::host, grid.over(pmm::Axis::expert), whole.numbers);
  if (sums_over_batches)
    runtime::all_reduce(runtime::host, grid.over({pmm::Axis::context, pmm::Axis::data}), whole.numbers);
  return whole;
}

/// Sets the numbers of each adapter's B that are in columns of other targets to zero.
template<class T>
void clear_other_targets(models::TransformerSettings const& settings,
                         std::vector<models::Parameter<T>> const& parameters) {
  for (auto const& parameter : parameters) {
    if (!parameter.name.ends_with(".lora_B")) continue;
    auto const stem = parameter.name.substr(0, parameter.name.rfind('.'));
    auto const slots = models::adapted_columns(settings, stem + ".weight")->slots;
    auto const numbers = host_copy(parameter.value());
    for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
      if (slots[static_cast<std::size_t>(j) % slots.size()] != i / settings.adapters.rank) numbers(place) = 0;
    });
    Kokkos::deep_copy(parameter.value(), numbers);
  }
}

struct LmGradients {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<Dense> gradients;
};

/// One pass of batch 0 from the formula's parameters.
template<class T = double>
LmGradients lm_gradients(pmm::ProcessGrid const& grid, LmCase const& the_case, bool gathers_ahead = false) {
  models::Transformer<T> network(grid, the_case.settings, the_case.num_sequences, the_case.sequence, lm_seed);
  set_formula_parameters(network.parameters());
  clear_other_targets(the_case.settings, network.parameters());
  network.set_gathers_ahead(gathers_ahead);
  LmBatch const batch(the_case, network.sequences(), 0, network.tokens());
  network.set_tokens(batch.tokens, batch.positions);
  pmm::RowLoss<T> loss(grid, network.logits_placement(), pmm::LossKind::softmax);
  std::vector<std::int8_t> const groups(batch.targets.size(), 0);
  loss.set_targets({device_copy(groups), device_copy(batch.targets), {}});
  auto const num_kept = LmBatch(the_case, {0, the_case.num_sequences}, 0).num_kept();

  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  auto const& logits = network.forward(exec, models::Pass::training, lm_step, phases);
  LmGradients result;
  result.loss = loss.loss_and_gradient(exec, logits, network.logits_gradient(), num_kept);
  result.loss = runtime::all_reduced(grid.over(batch_axes(grid.shape())), result.loss);
  network.backward(exec, phases);
  Kokkos::fence();
  for (auto const& parameter : network.parameters()) {
    result.names.push_back(parameter.name);
    // A statistic's gradient is the same on all data groups: the value towards which it moves.
    result.gradients.push_back(whole_of(parameter, parameter.gradient(), !parameter.is_statistic()));
  }
  return result;
}

inline double norm_of(Dense const& a) {
  auto sum = 0.0;
  for (auto const number : a.numbers)
    sum += number * number;
  return std::sqrt(sum);
}

/// The norm and the sums with three arrays of pseudo-random numbers, as reference.py tells an array.
inline std::vector<double> told(Dense const& a) {
  std::vector<double> numbers{norm_of(a)};
  for (std::int64_t p = 1000; p < 1003; ++p) {
    auto sum = 0.0;
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.columns; ++j) {
        auto const k = (31 * i * i + 6007 * i * j + 7919 * i + 38183 * j + 104729 * p + 12345) % 100003;
        sum += a(i, j) * (2.0 * static_cast<double>(k) / 100003.0 - 1.0);
      }
    numbers.push_back(sum);
  }
  return numbers;
}

/// Each number within `tolerance` of the array's norm.
inline void expect_told(Dense const& found, nlohmann::json const& expected, double tolerance,
                        std::string const& name) {
  auto const numbers = told(found);
  auto const norm = expected.at(0).get<double>();
  for (std::size_t k = 0; k < numbers.size(); ++k)
    EXPECT_NEAR(numbers[k], expected.at(k).get<double>(), tolerance * norm) << name << ", number " << k;
}

} // namespace orthant::testing
