#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Residuals and jumping knowledge of the reference network (reference_network.hpp).

#include "models/gnn/plan/network_settings.hpp"
#include "models/reference/tape.hpp"

#include <map>
#include <string>
#include <vector>

namespace orthant::testing {

using NamedNumbers = std::map<std::string, Tape::Number>;

/// D + F if both are equally wide and F is not X; D + F W_r if the residual has a weight.
inline Tape::Number with_residual(Tape& tape, models::NetworkSettings const& settings, Tape::Number d,
                                  Tape::Number f, std::string const& part, NamedNumbers const& p,
                                  bool reads_features) {
  if (!settings.has_residuals) return d;
  if (auto const map = p.find(part + ".residual.weight"); map != p.end())
    return tape.sum(d, tape.product(f, map->second));
  return reads_features || d->value.columns != f->value.columns ? d : tape.sum(d, f);
}

/// What the head reads: the results side by side, their maximum or their mean, or the last of them (arXiv 1806.03536).
inline Tape::Number joined(Tape& tape, models::NetworkSettings const& settings,
                           std::vector<Tape::Number> const& results) {
  using models::JumpKind;
  auto* all = results.back();
  if (settings.jump == JumpKind::none) return all;
  if (settings.jump == JumpKind::cat) return tape.side_by_side(results);
  all = results.front();
  for (std::size_t l = 1; l < results.size(); ++l)
    all = settings.jump == JumpKind::max ? tape.larger(all, results[l]) : tape.sum(all, results[l]);
  return settings.jump == JumpKind::max ? all : tape.times(all, 1 / static_cast<double>(results.size()));
}

/// Logits of a head, whose weight of several results has a block of rows per result. `layers`: their numbers but the last.
inline Tape::Number head_of(Tape& tape, models::NetworkSettings const& settings,
                            std::vector<Tape::Number> const& results, NamedNumbers const& p,
                            std::vector<std::string> const& layers) {
  std::vector<Tape::Number> blocks;
  for (auto const& layer : layers)
    if (settings.jump == models::JumpKind::cat)
      blocks.push_back(tape.transpose(p.at(layer + ".jump.weight")));
  blocks.push_back(tape.transpose(p.at("head.weight")));
  auto* const weight = tape.transpose(tape.side_by_side(blocks));
  auto* const logits = tape.product(joined(tape, settings, results), weight);
  return settings.has_bias ? tape.with_bias(logits, p.at("head.bias")) : logits;
}

} // namespace orthant::testing
