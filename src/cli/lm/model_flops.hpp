#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic that training a transformer asks for, per token, whatever a program does beside it (Kaplan et al.,
// arXiv 2001.08361; Chowdhery et al., arXiv 2204.02311, appendix B):
//
//   6 N             N parameters of matrices that multiply: forward once, backward twice, 2 flop each
//   12 L H S        scores and their products with the values, of S tokens each, in L layers of width H
//
// Recomputation is not counted, nor is the half of the scores that a causal mask leaves out subtracted.

#include "models/plan/transformer_settings.hpp"

namespace orthant::cli {

struct ModelFlops {
  double products = 0; // per token
  double attention = 0;

  [[nodiscard]] double per_token() const { return products + attention; }
};

[[nodiscard]] ModelFlops model_flops(models::TransformerSettings const& settings, std::int64_t sequence);

} // namespace orthant::cli
