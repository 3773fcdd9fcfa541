#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Networks by the equations of their papers on dense matrices of a whole graph, or of a part of it, in original ids; and
// Adam. Parameters have the names of the program, and nothing else is the program's.

#include "models/gnn/plan/network_settings.hpp"
#include "models/reference/reference_attention.hpp"
#include "models/reference/reference_skips.hpp"
#include "models/reference/tape.hpp"
#include "sampling/sampling_fixture.hpp"

#include <map>
#include <string>

namespace orthant::testing {

/// A store as dense matrices, by original id. Of one rank.
struct DenseGraph {
  Dense adjacency; // A, weights included
  Dense features;
  std::vector<std::int64_t> classes;
  std::vector<char> trains;
};

inline DenseGraph dense_graph_of(graph::GraphStore const& store, bool scales_features = false) {
  auto const n = store.facts().num_vertices;
  auto const width = store.facts().num_features;
  DenseGraph graph{plain_matrix(store), Dense(n, width), std::vector<std::int64_t>(position(n)),
                   std::vector<char>(position(n))};
  auto const order = graph::Order::p2;
  auto const ids = store.read_original_ids(order, {0, n});
  auto const labels = store.read_labels(order, {0, n});
  auto const mask = store.read_mask(graph::Split::train, order, {0, n});
  for (std::int64_t i = 0; i < n; ++i) {
    graph.classes[position(ids[position(i)])] = labels[position(i)];
    graph.trains[position(ids[position(i)])] = static_cast<char>(mask[position(i)]);
  }
  if (store.facts().feature_kind == graph::FeatureKind::dense) {
    auto const numbers = store.read_features(order, {0, n}, {0, width});
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < width; ++j)
        graph.features(ids[position(i)], j) = static_cast<double>(numbers[position(i * width + j)]);
  } else {
    auto const block = store.read_sparse_features({0, n}, {0, width});
    for (std::int64_t i = 0; i < n; ++i)
      for (auto k = block.row_offsets[position(i)]; k < block.row_offsets[position(i) + 1]; ++k)
        graph.features(ids[position(i)], block.columns[position(k)]) =
            block.values.empty() ? 1.0 : static_cast<double>(block.values[position(k)]);
  }
  for (std::int64_t i = 0; scales_features && i < n; ++i) {
    auto sum = 0.0;
    for (std::int64_t j = 0; j < width; ++j)
      sum += graph.features(i, j);
    for (std::int64_t j = 0; j < width; ++j)
      graph.features(i, j) = sum == 0 ? 0 : graph.features(i, j) / sum;
  }
  return graph;
}

/// What a network multiplies by: D^-1/2 A* D^-1/2, D^-1 A* or A*, D the row sums of A*; A* is A with these self loops.
inline Dense operator_of(Dense a, graph::GraphOperator const& by) {
  auto const n = a.rows;
  std::vector<double> sums(position(n));
  for (std::int64_t i = 0; i < n; ++i) {
    if (by.self_loops != graph::SelfLoops::as_given)
      a(i, i) = by.self_loops == graph::SelfLoops::added ? 1 : 0;
    for (std::int64_t j = 0; j < n; ++j)
      sums[position(i)] += a(i, j);
  }
  if (by.normalization == graph::Normalization::none) return a;
  // A vertex without a positive sum keeps out, as in PyG.
  auto const factor = [&](std::int64_t i, double power) {
    return sums[position(i)] > 0 ? std::pow(sums[position(i)], power) : 0.0;
  };
  auto const is_row = by.normalization == graph::Normalization::row;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      a(i, j) *= is_row ? factor(i, -1) : factor(i, -0.5) * factor(j, -0.5);
  return a;
}

/// Entries off the diagonal dropped with a probability, the others scaled: one draw per edge, for both directions, keyed by `step` and
/// the ids of the rows.
inline Dense with_dropped_edges(Dense a, models::NetworkSettings const& settings, std::uint64_t step,
                                std::vector<std::int64_t> const& ids) {
  auto const p = settings.edge_dropout;
  runtime::RandomStream const stream(settings.seed, runtime::Purpose::edge_dropout, step);
  for (std::int64_t i = 0; p > 0 && i < a.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      auto const [smaller, larger] = std::minmax(ids[position(i)], ids[position(j)]);
      auto const is_dropped =
          stream.bernoulli(p, static_cast<std::uint64_t>(smaller), static_cast<std::uint64_t>(larger));
      auto const keep = is_dropped ? 0.0 : 1 / (1 - p);
      a(i, j) *= keep;
      a(j, i) *= keep;
    }
  return a;
}

using NamedMatrices = std::map<std::string, Dense>;

/// Rows and columns of these vertices.
inline Dense part_of(Dense const& a, std::vector<std::int64_t> const& rows,
                     std::vector<std::int64_t> const& columns) {
  return make_dense(std::ssize(rows), std::ssize(columns), [&](std::int64_t i, std::int64_t j) {
    return a(rows[position(i)], columns[position(j)]);
  });
}
inline std::vector<std::int64_t> first_numbers(std::int64_t count) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(i);
  return numbers;
}

/// sum_k A^^k F W_k, k = 0 .. K, term by term. The weights W_k lie side by side.
inline Tape::Number powers_of(Tape& tape, Dense const& a, Tape::Number f, Tape::Number weights,
                              std::int64_t num_powers) {
  auto const width = weights->value.columns / (num_powers + 1);
  Tape::Number sum = nullptr;
  for (std::int64_t k = 0; k <= num_powers; ++k, f = tape.product(a, f)) {
    auto* const term = tape.product(f, tape.columns(weights, k * width, width));
    sum = sum == nullptr ? term : tape.sum(sum, term);
  }
  return sum;
}

inline Tape::Number activated(Tape& tape, models::Activation f, Tape::Number z) {
  using models::Activation;
  return f == Activation::relu         ? tape.relu(z)
         : f == Activation::elu        ? tape.elu(z)
         : f == Activation::gelu       ? tape.gelu(z)
         : f == Activation::silu       ? tape.silu(z)
         : f == Activation::leaky_relu ? tape.leaky_relu(z, 0.01)
                                       : tape.tanh(z);
}

/// The norm of part `part`'s output, if there is one. In training BatchNorm leaves what it found in the place of the gradients of its
/// running mean and variance, the variance with n - 1 in place of n; in an evaluation it uses the running ones.
inline Tape::Number normed(Tape& tape, models::NetworkSettings const& settings, models::Pass pass,
                           Tape::Number z, std::string const& part, NamedNumbers const& p) {
  using models::Norm;
  auto const of = [&](char const* name) { return p.at(part + ".norm" + name); };
  constexpr auto epsilon = 1e-5;
  if (settings.norm == Norm::none) return z;
  if (settings.norm == Norm::rms) return tape.rms_norm(z, of(""), 1e-6);
  if (settings.norm == Norm::layer)
    return tape.centered_norm(z, of(""), of("_shift"), Tape::Over::row, epsilon);
  auto* const mean = of("_mean");
  auto* const variance = of("_variance");
  if (pass == models::Pass::evaluation) {
    auto const y = make_dense(z->value.rows, z->value.columns, [&](std::int64_t i, std::int64_t j) {
      auto const n = (z->value(i, j) - mean->value(0, j)) / std::sqrt(variance->value(0, j) + epsilon);
      return n * of("")->value(0, j) + of("_shift")->value(0, j);
    });
    return tape.leaf(y);
  }
  Tape::Moments moments;
  auto* const y = tape.centered_norm(z, of(""), of("_shift"), Tape::Over::column, epsilon, &moments);
  auto const n = static_cast<double>(z->value.rows);
  for (std::int64_t j = 0; j < z->value.columns; ++j) {
    mean->gradient(0, j) += moments.mean[position(j)];
    variance->gradient(0, j) += moments.variance[position(j)] * n / (n - 1);
  }
  return y;
}

/// Logits of the network of `settings`, without dropout, on features X with the operator A^.
///
///   GCN (arXiv 1609.02907, equation 2)         Z_l = A^ F_l W_l + b_l
///   GraphSAGE (arXiv 1706.02216, algorithm 1)  Z_l = A^ F_l W_l + F_l W'_l + b_l, or the maximum of the neighbours in place of A^ F_l
///   GraphConv (arXiv 1810.02244, equation 5)   Z_l = A F_l W_l + F_l W'_l + b_l
///   TAGConv (arXiv 1710.10370, equation 3)     Z_l = sum_k A^^k F_l W_lk + b_l, W_l = [W_l0 | .. | W_lK]
///   GIN (arXiv 1810.00826, equation 4.1)       F_{l+1} = f(MLP_l((1 + epsilon_l) F_l + A^ F_l)), the last without f
///   F_{l+1} = f(Z_l), f(norm(Z_l)) with a norm, and with_residual(); f is the activation
///
/// Models that propagate (gnn_model.hpp has their equations): below.
inline Tape::Number propagated_logits_of(Tape& tape, models::NetworkSettings const& settings, Dense const& a,
                                         Tape::Number x, NamedNumbers const& p, models::Pass pass);
inline Tape::Number logits_of(Tape& tape, models::NetworkSettings const& settings, Dense const& a,
                              Tape::Number x, NamedNumbers const& p,
                              models::Pass pass = models::Pass::training) {
  auto const with_bias = [&](Tape::Number z, std::string const& part) {
    return settings.has_bias ? tape.with_bias(z, p.at(part + ".bias")) : z;
  };
  auto const traits = traits_of(settings.model, settings.aggregator);
  if (traits.begins_dense()) return propagated_logits_of(tape, settings, a, x, p, pass);
  auto f = x;
  std::vector<Tape::Number> results;
  std::vector<std::string> before_last;
  if (settings.projected_width > 0) f = with_bias(tape.product(f, p.at("input.weight")), "input");
  for (std::int64_t l = 0; l < settings.num_layers(); ++l) {
    if (l > 0) {
      results.push_back(f);
      before_last.push_back("layer" + std::to_string(l - 1));
    }
    auto const layer = "layer" + std::to_string(l);
    auto const is_last = l + 1 == settings.num_layers() && !settings.has_head;
    auto const reads_features = l == 0 && settings.projected_width == 0;
    if (traits.attention) {
      auto* const u = tape.product(f, p.at(layer + ".weight"));
      auto* const q =
          with_bias(attention_of(tape, *traits.attention, a, u, p.at(layer + ".attention"), is_last), layer);
      if (is_last) return q;
      auto* d = activated(tape, settings.activation, normed(tape, settings, pass, q, layer, p));
      f = with_residual(tape, settings, d, f, layer, p, reads_features);
      continue;
    }
    auto h = traits.takes_maximum ? tape.maximum(a, f) : tape.product(a, f);
    if (settings.model == models::Model::gin) h = tape.sum(h, tape.scaled(f, p.at(layer + ".epsilon")));
    auto z = traits.has_powers ? powers_of(tape, a, f, p.at(layer + ".weight"), settings.num_propagations)
                               : tape.product(h, p.at(layer + ".weight"));
    if (traits.has_self_weights) z = tape.sum(z, tape.product(f, p.at(layer + ".self_weight")));
    z = with_bias(z, layer);
    if (l + 1 == settings.num_layers() && !settings.has_head) return z;
    auto d = activated(tape, settings.activation, normed(tape, settings, pass, z, layer, p));
    auto const second = layer + ".second";
    auto const is_gin = settings.model == models::Model::gin;
    auto const ends_with_head =
        is_gin && l + 1 == settings.num_layers() && settings.jump == models::JumpKind::none;
    if (is_gin && !ends_with_head)
      d = activated(tape, settings.activation, with_bias(tape.product(d, p.at(second + ".weight")), second));
    f = ends_with_head ? d : with_residual(tape, settings, d, f, layer, p, reads_features);
  }
  results.push_back(f);
  return head_of(tape, settings, results, p, before_last);
}

inline Tape::Number logits_of(Tape& tape, models::NetworkSettings const& settings, Dense const& a,
                              Dense const& x, NamedNumbers const& p,
                              models::Pass pass = models::Pass::training) {
  return logits_of(tape, settings, a, tape.leaf(x), p, pass);
}

/// SGC (arXiv 1902.07153, equation 8), APPNP (arXiv 1810.05997, equation 4), GCNII (arXiv 2007.02133, equation 5).
inline Tape::Number propagated_logits_of(Tape& tape, models::NetworkSettings const& settings, Dense const& a,
                                         Tape::Number x, NamedNumbers const& p, models::Pass pass) {
  auto const with_bias = [&](Tape::Number z, std::string const& part) {
    return settings.has_bias ? tape.with_bias(z, p.at(part + ".bias")) : z;
  };
  auto const has_projection = settings.projected_width > 0;
  auto const hidden = [&](Tape::Number z, Tape::Number f, std::string const& part) {
    auto* const d = activated(tape, settings.activation, normed(tape, settings, pass, z, part, p));
    return with_residual(tape, settings, d, f, part, p, part == "layer0" && !has_projection);
  };
  auto const alpha = settings.teleport;
  std::vector<Tape::Number> results;
  std::vector<std::string> before_last;
  auto f = x;
  if (has_projection) f = with_bias(tape.product(f, p.at("input.weight")), "input");
  if (settings.model == models::Model::sgc || settings.model == models::Model::appnp) {
    auto const is_sgc = settings.model == models::Model::sgc;
    auto const last = "layer" + std::to_string(settings.num_layers() - 1);
    for (std::int64_t l = 0; l + 1 < settings.num_layers(); ++l) {
      auto const layer = "layer" + std::to_string(l);
      f = hidden(with_bias(tape.product(f, p.at(layer + ".weight")), layer), f, layer);
      results.push_back(f);
      before_last.push_back(layer);
    }
    f = tape.product(f, p.at(last + ".weight"));
    if (!is_sgc) f = with_bias(f, last);
    auto const h = f;
    for (std::int64_t k = 0; k < settings.num_propagations; ++k)
      f = is_sgc ? tape.product(a, f) : tape.combination(1 - alpha, tape.product(a, f), alpha, h);
    if (is_sgc) f = with_bias(f, last); // added last
    results.push_back(f);
    return settings.has_head ? head_of(tape, settings, results, p, before_last) : f;
  }
  f = hidden(with_bias(tape.product(f, p.at("layer0.weight")), "layer0"), f, "layer0");
  auto const h = f;
  for (std::int64_t l = 1; l <= settings.num_layers(); ++l) {
    auto const layer = "layer" + std::to_string(l);
    results.push_back(f);
    before_last.push_back("layer" + std::to_string(l - 1));
    auto const beta = std::log(settings.theta / static_cast<double>(l) + 1);
    auto const propagated = tape.combination(1 - alpha, tape.product(a, f), alpha, h);
    auto const z =
        tape.combination(1 - beta, propagated, beta, tape.product(propagated, p.at(layer + ".weight")));
    f = hidden(z, f, layer);
  }
  results.push_back(f);
  return head_of(tape, settings, results, p, before_last);
}

/// Adam (Kingma & Ba, arXiv 1412.6980) as PyTorch has it; weights are decayed, biases and scales are not. Running statistics move by a
/// tenth towards the mean of what the passes of a step found.
class ReferenceAdam {
 public:
  ReferenceAdam(double rate, double weight_decay) : rate_(rate), weight_decay_(weight_decay) {}

  void step(NamedMatrices& parameters, NamedMatrices const& gradients, std::int64_t num_passes = 1) {
    ++t_;
    for (auto& [name, values] : parameters) {
      if (name.ends_with("norm_mean") || name.ends_with("norm_variance")) {
        for (std::size_t k = 0; k < values.numbers.size(); ++k)
          values.numbers[k] =
              0.9 * values.numbers[k] + 0.1 * gradients.at(name).numbers[k] / static_cast<double>(num_passes);
        continue;
      }
      auto const decay = name.ends_with("weight") || name.ends_with("attention") ? weight_decay_ : 0.0;
      auto& [m, v] =
          moments_.try_emplace(name, Dense(values.rows, values.columns), Dense(values.rows, values.columns))
              .first->second;
      for (std::size_t k = 0; k < values.numbers.size(); ++k) {
        auto const g = gradients.at(name).numbers[k] + decay * values.numbers[k];
        m.numbers[k] = 0.9 * m.numbers[k] + 0.1 * g;
        v.numbers[k] = 0.999 * v.numbers[k] + 0.001 * g * g;
        values.numbers[k] -= rate_ * (m.numbers[k] / (1 - std::pow(0.9, t_))) /
                             (std::sqrt(v.numbers[k] / (1 - std::pow(0.999, t_))) + 1e-8);
      }
    }
  }

 private:
  double rate_, weight_decay_;
  int t_ = 0;
  std::map<std::string, std::pair<Dense, Dense>> moments_;
};

/// A graph, or a part of it, as a pass sees it.
struct ReferencePass {
  Dense a, x;
  std::vector<std::int64_t> classes;
  std::vector<char> counts;
  std::vector<std::int64_t> vertices{}; // of a batch: the rows of trained features that it reads

  [[nodiscard]] std::int64_t num_counted() const { return std::count(counts.begin(), counts.end(), 1); }
};

struct ReferenceStep {
  double loss = 0;
  NamedMatrices gradients;
  Dense logits{0, 0}; // of the last pass
};

/// Features of a pass: its own, or its rows of the parameter "features".
inline Tape::Number features_of(Tape& tape, ReferencePass const& pass, NamedNumbers const& p) {
  auto const trained = p.find("features");
  if (trained == p.end()) return tape.leaf(pass.x);
  if (pass.vertices.empty()) return trained->second;
  auto const picks =
      make_dense(std::ssize(pass.vertices), trained->second->value.rows,
                 [&](std::int64_t i, std::int64_t j) { return pass.vertices[position(i)] == j ? 1.0 : 0.0; });
  return tape.product(picks, trained->second);
}

/// The mean loss over the counted vertices of all passes, and its gradients.
inline ReferenceStep reference_step(models::NetworkSettings const& settings, NamedMatrices const& parameters,
                                    std::vector<ReferencePass> const& passes) {
  ReferenceStep step;
  std::int64_t count = 0;
  for (auto const& pass : passes)
    count += pass.num_counted();
  for (auto const& [name, values] : parameters)
    step.gradients.emplace(name, Dense(values.rows, values.columns));
  for (auto const& pass : passes) {
    Tape tape;
    NamedNumbers leaves;
    for (auto const& [name, values] : parameters)
      leaves.emplace(name, tape.leaf(values));
    auto* const logits = logits_of(tape, settings, pass.a, features_of(tape, pass, leaves), leaves);
    step.loss += tape.softmax_loss(logits, pass.classes, pass.counts,
                                   1 / static_cast<double>(std::max<std::int64_t>(count, 1)));
    step.logits = logits->value;
    for (auto& [name, gradient] : step.gradients)
      add_to(gradient, leaves.at(name)->gradient);
  }
  return step;
}

} // namespace orthant::testing
