#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Combinations of options of graph networks that are refused, and why. docs/graph_models.md, "What is refused", has the
// same table; tests/cli/combinations/refused.py compares them.

#include "runtime/error.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace orthant::models {

enum class Refused : std::uint8_t {
  batch_edges,
  train_fraction,
  heads,
  widths,
  sparse_features,
  fp64,
  operand_models,
  link_formats,
  link_batches
};

struct Refusal {
  std::string_view options;
  std::string_view reason;
};

/// In the order of Refused.
inline constexpr std::array<Refusal, 9> refusals{{
    {"--batch-edges renormalize needs a normalized graph",
     "it divides by the degrees within a batch in place of those of the graph"},
    {"--batch-train-fraction works with --sampler uniform only",
     "other samplers do not fix the number of training vertices of a batch"},
    {"--heads must divide --hidden", "the heads of a layer have equal shares of its columns"},
    {"--model gcnii and --jump max or mean need hidden layers of one width",
     "outputs of layers are added or compared element by element"},
    {"--trainable-features needs dense features",
     "a step of the optimizer would fill the zeros of sparse ones"},
    {"--comm-dtype and --operand-dtype other than fp32 need --compute-dtype fp32",
     "their numbers are rounded from fp32"},
    {"--operand-dtype of 16 bits goes with --model gcn without --jump",
     "only products of its layers have operands of 16 bits"},
    {"--comm-dtype and --operand-dtype other than fp32 go with --task nodes",
     "scores of links have no operands of 16 bits"},
    {"--task links is trained on the full graph", "a batch of vertices rarely holds both ends of an edge"},
}};

/// Throws UserError: the options, the reason, and what to do.
[[noreturn]] inline void refuse(Refused which, std::string_view remedy) {
  auto const& [options, reason] = refusals.at(static_cast<std::size_t>(which));
  runtime::throw_user("{}: {}; {}", options, reason, remedy);
}

} // namespace orthant::models
