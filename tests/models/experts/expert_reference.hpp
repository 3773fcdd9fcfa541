#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A layer of experts and its gradients on one rank, in double, written from the equations:
//
//   l_i = W_r^T h_i     p_i = softmax(l_i)     first, second, .. choice by l_i, the lower number first
//   an expert takes choices until it is full: first choices of all tokens in order, then second ones
//   w_ik = p of the choice (K = 1), or that over the sum of the token's kept choices
//   b_i = sum_k w_ik  W_down^T act(W_up^T h_i)
//   L = sum_i <g_i, b_i> + C_b E sum_e f_e mean_i p_ie + C_z mean_i (log sum_e exp l_ie)^2
//
// with f_e the share of expert e of all choices, which is held fixed.

#include "models/lm/plan/expert_plan.hpp"
#include "support/reference.hpp"

#include <cmath>
#include <numbers>
#include <vector>

namespace orthant::testing {

/// Of the layer, and gradients by the same.
struct ExpertWeights {
  Dense router;                // hidden x experts
  std::vector<Dense> up, down; // of each expert: hidden x width (twice with SwiGLU), width x hidden
};

struct ExpertReference {
  Dense branch, input_gradient;
  ExpertWeights gradients;
  double loss = 0;
  std::vector<std::int64_t> chosen, kept; // by expert
};

namespace detail {

inline Dense zero_like(Dense const& a) {
  return Dense(a.rows, a.columns);
}
inline double logistic(double z) {
  return 1 / (1 + std::exp(-z));
}
/// act(u), and the gradient by u from that by act(u).
inline std::vector<double> activated(std::vector<double> const& u, bool is_swiglu) {
  std::vector<double> a;
  if (is_swiglu)
    for (std::size_t j = 0; j < u.size(); j += 2)
      a.push_back(u[j] * logistic(u[j]) * u[j + 1]);
  else
    for (auto const z : u)
      a.push_back(z * 0.5 * (1 + std::erf(z / std::numbers::sqrt2)));
  return a;
}
inline std::vector<double> through_activation(std::vector<double> const& u, std::vector<double> const& da,
                                              bool is_swiglu) {
  std::vector<double> du(u.size());
  if (is_swiglu)
    for (std::size_t j = 0; j < da.size(); ++j) {
      auto const g = u[2 * j], s = logistic(g);
      du[2 * j] = da[j] * u[2 * j + 1] * (s + g * s * (1 - s));
      du[2 * j + 1] = da[j] * g * s;
    }
  else
    for (std::size_t j = 0; j < u.size(); ++j)
      du[j] = da[j] * (0.5 * (1 + std::erf(u[j] / std::numbers::sqrt2)) +
                       u[j] * std::exp(-u[j] * u[j] / 2) / std::sqrt(2 * std::numbers::pi));
  return du;
}

} // namespace detail

/// `g`: the gradient by the branch. `groups`: of so many tokens each, in their order, each with slots of its own; none: one of all tokens.
inline ExpertReference expert_reference(Dense const& h, Dense const& g, ExpertWeights const& weights,
                                        models::ExpertSettings const& settings, bool is_swiglu,
                                        std::vector<std::int64_t> const& groups = {}) {
  auto const num_tokens = h.rows, hidden = h.columns, num_experts = weights.router.columns;
  auto const tokens = static_cast<double>(num_tokens);
  ExpertReference result{detail::zero_like(h), detail::zero_like(h), weights, 0, {}, {}};
  result.chosen.resize(static_cast<std::size_t>(num_experts));
  result.kept.resize(static_cast<std::size_t>(num_experts));
  for (auto* const matrices : {&result.gradients.up, &result.gradients.down})
    for (auto& matrix : *matrices)
      matrix = detail::zero_like(matrix);
  result.gradients.router = detail::zero_like(weights.router);

  Dense logits(num_tokens, num_experts), p(num_tokens, num_experts);
  Dense choice(num_tokens, settings.top_k);
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    auto sum = 0.0;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      for (std::int64_t j = 0; j < hidden; ++j)
        logits(i, e) += h(i, j) * weights.router(j, e);
      sum += std::exp(logits(i, e));
    }
    for (std::int64_t e = 0; e < num_experts; ++e)
      p(i, e) = std::exp(logits(i, e)) / sum;
    result.loss += settings.z_loss * std::log(sum) * std::log(sum) / tokens;
    std::vector<bool> taken(static_cast<std::size_t>(num_experts));
    for (std::int64_t k = 0; k < settings.top_k; ++k) {
      std::int64_t best = -1;
      for (std::int64_t e = 0; e < num_experts; ++e)
        if (!taken[static_cast<std::size_t>(e)] && (best < 0 || logits(i, e) > logits(i, best))) best = e;
      taken[static_cast<std::size_t>(best)] = true;
      choice(i, k) = static_cast<double>(best);
      ++result.chosen[static_cast<std::size_t>(best)];
    }
  }
  auto const limit_of = [&](std::int64_t of_tokens) {
    return settings.capacity ? std::max(1.0, std::ceil(*settings.capacity * static_cast<double>(of_tokens) *
                                                       static_cast<double>(settings.top_k) /
                                                       static_cast<double>(num_experts)))
                             : HUGE_VAL;
  };
  std::int64_t first = 0;
  for (auto const size : groups.empty() ? std::vector{num_tokens} : groups) {
    std::vector<std::int64_t> full(result.kept.size());
    for (std::int64_t k = 0; k < settings.top_k; ++k)
      for (std::int64_t i = first; i < first + size; ++i) {
        auto& slots = full[static_cast<std::size_t>(choice(i, k))];
        if (static_cast<double>(slots) < limit_of(size))
          ++slots;
        else
          choice(i, k) = -1;
      }
    for (std::size_t e = 0; e < full.size(); ++e)
      result.kept[e] += full[e];
    first += size;
  }

  for (std::int64_t i = 0; i < num_tokens; ++i) {
    std::vector<double> dp(static_cast<std::size_t>(num_experts));
    auto total = 0.0;
    for (std::int64_t k = 0; k < settings.top_k; ++k)
      if (choice(i, k) >= 0) total += p(i, static_cast<std::int64_t>(choice(i, k)));
    std::vector<double> dw(static_cast<std::size_t>(settings.top_k));
    for (std::int64_t k = 0; k < settings.top_k; ++k) {
      if (choice(i, k) < 0) continue;
      auto const e = static_cast<std::int64_t>(choice(i, k));
      auto const w = settings.top_k == 1 ? p(i, e) : p(i, e) / total;
      auto const& up = weights.up[static_cast<std::size_t>(e)];
      auto const& down = weights.down[static_cast<std::size_t>(e)];
      std::vector<double> u(static_cast<std::size_t>(up.columns));
      for (std::int64_t c = 0; c < up.columns; ++c)
        for (std::int64_t j = 0; j < hidden; ++j)
          u[static_cast<std::size_t>(c)] += h(i, j) * up(j, c);
      auto const a = detail::activated(u, is_swiglu);
      std::vector<double> da(a.size());
      for (std::int64_t j = 0; j < hidden; ++j) {
        auto y = 0.0;
        for (std::int64_t c = 0; c < down.rows; ++c)
          y += a[static_cast<std::size_t>(c)] * down(c, j);
        result.branch(i, j) += w * y;
        result.loss += g(i, j) * w * y;
        dw[static_cast<std::size_t>(k)] += g(i, j) * y;
        for (std::int64_t c = 0; c < down.rows; ++c) {
          da[static_cast<std::size_t>(c)] += w * g(i, j) * down(c, j);
          result.gradients.down[static_cast<std::size_t>(e)](c, j) +=
              a[static_cast<std::size_t>(c)] * w * g(i, j);
        }
      }
      auto const du = detail::through_activation(u, da, is_swiglu);
      for (std::int64_t c = 0; c < up.columns; ++c)
        for (std::int64_t j = 0; j < hidden; ++j) {
          result.gradients.up[static_cast<std::size_t>(e)](j, c) += h(i, j) * du[static_cast<std::size_t>(c)];
          result.input_gradient(i, j) += du[static_cast<std::size_t>(c)] * up(j, c);
        }
    }
    // dw_m / dp_k = (1 if m = k) / S - p_m / S^2
    for (std::int64_t k = 0; k < settings.top_k; ++k) {
      if (choice(i, k) < 0) continue;
      auto const e = static_cast<std::int64_t>(choice(i, k));
      for (std::int64_t m = 0; m < settings.top_k; ++m) {
        if (choice(i, m) < 0) continue;
        auto const of_sum = p(i, static_cast<std::int64_t>(choice(i, m))) / (total * total);
        auto const slope = settings.top_k == 1 ? 1.0 : (m == k ? 1 / total : 0.0) - of_sum;
        dp[static_cast<std::size_t>(e)] += dw[static_cast<std::size_t>(m)] * slope;
      }
    }
    auto sum = 0.0;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      auto const share = static_cast<double>(result.chosen[static_cast<std::size_t>(e)]) /
                         (tokens * static_cast<double>(settings.top_k));
      auto const slope = settings.balance_loss * static_cast<double>(num_experts) * share / tokens;
      dp[static_cast<std::size_t>(e)] += slope;
      result.loss += slope * p(i, e);
      sum += std::exp(logits(i, e));
    }
    // dp_a / dl_b = p_a ((1 if a = b) - p_b), and d lse^2 / dl_b = 2 lse p_b
    for (std::int64_t b = 0; b < num_experts; ++b) {
      auto dl = settings.z_loss * 2 * std::log(sum) * p(i, b) / tokens;
      for (std::int64_t a = 0; a < num_experts; ++a)
        dl += dp[static_cast<std::size_t>(a)] * p(i, a) * ((a == b ? 1.0 : 0.0) - p(i, b));
      for (std::int64_t j = 0; j < hidden; ++j) {
        result.gradients.router(j, b) += h(i, j) * dl;
        result.input_gradient(i, j) += dl * weights.router(j, b);
      }
    }
  }
  return result;
}

} // namespace orthant::testing
