// SPDX-License-Identifier: Apache-2.0
#include "pmm/experts/routing.hpp"

#include "runtime/error.hpp"

namespace orthant::pmm {
namespace {

using runtime::DefaultExec, runtime::LocalPass, runtime::Matrix, runtime::PassLedger, runtime::Vector;

constexpr std::int64_t expert_bytes = sizeof(std::int32_t);

template<class T>
struct Choose {
  T const* logits;
  std::int64_t num_experts, num_choices;
  double deviation;
  runtime::RandomStream stream;
  std::int64_t first_token;
  SequencePart tokens;
  T const* biases; // null: softmax gates
  T* probabilities;
  T* log_sum_exp;
  std::int32_t* experts;

  [[nodiscard]] KOKKOS_FUNCTION double score(std::int64_t i, std::int64_t e) const {
    auto const place = i * num_experts + e;
    auto const unbiased = static_cast<double>(biases == nullptr ? logits[place] : probabilities[place]);
    auto const its = biases == nullptr ? unbiased : unbiased + static_cast<double>(biases[e]);
    if (deviation == 0) return its;
    return its + deviation * stream.template normal<double>(
                                 static_cast<std::uint64_t>(first_token + tokens.token_of(i)),
                                 static_cast<std::uint64_t>(e));
  }
  [[nodiscard]] KOKKOS_FUNCTION bool is_chosen(std::int64_t i, std::int64_t k, std::int64_t e) const {
    for (std::int64_t earlier = 0; earlier < k; ++earlier)
      if (experts[i * num_choices + earlier] == e) return true;
    return false;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const* const l = logits + i * num_experts;
    auto* const p = probabilities + i * num_experts;
    auto largest = l[0];
    for (std::int64_t e = 1; e < num_experts; ++e)
      largest = l[e] > largest ? l[e] : largest;
    T sum = 0;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      p[e] = runtime::compat::exp(l[e] - largest);
      sum += p[e];
    }
    for (std::int64_t e = 0; e < num_experts; ++e)
      p[e] = biases == nullptr ? p[e] / sum : 1 / (1 + runtime::compat::exp(-l[e]));
    log_sum_exp[i] = largest + runtime::compat::log(sum);
    for (std::int64_t k = 0; k < num_choices; ++k) {
      std::int64_t best = -1;
      auto best_score = 0.0;
      for (std::int64_t e = 0; e < num_experts; ++e) {
        if (is_chosen(i, k, e)) continue;
        auto const its = score(i, e);
        if (best < 0 || its > best_score) {
          best = e;
          best_score = its;
        }
      }
      experts[i * num_choices + k] = static_cast<std::int32_t>(best);
    }
  }
};

template<class T>
struct Weigh {
  T const* probabilities;
  std::int32_t const* experts;
  std::int64_t num_experts, num_choices;
  bool normalizes;
  T scale;
  T* weights;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    T sum = 0;
    for (std::int64_t k = 0; k < num_choices; ++k) {
      auto const choice = i * num_choices + k;
      weights[choice] = experts[choice] < 0 ? T{0} : probabilities[i * num_experts + experts[choice]];
      sum += weights[choice];
    }
    for (std::int64_t k = 0; k < num_choices; ++k) {
      auto& weight = weights[i * num_choices + k];
      if (normalizes && sum > 0) weight /= sum;
      weight *= scale;
    }
  }
};

/// With normalized weights, S the sum of the p of kept choices, and s p_k / S = w_k:
///   dp_k = (s dw_k - sum_j dw_j w_j) / S          dl = p (dp - sum p dp)
/// The factor p_k / S is replaced by w_k / s, so nothing is divided by S, which may be 0.
template<class T>
struct Backward {
  T const* probabilities;
  T const* log_sum_exp;
  std::int32_t const* experts;
  T const* weights;
  T const* weight_gradient;
  T const* shares;
  std::int64_t num_experts, num_choices;
  bool normalizes, has_sigmoids;
  T scale;
  T balance;      // coefficient of the balance loss times E / N
  T z;            // coefficient of the z-loss times 2 / N
  T of_sequences; // coefficient of the balance loss of the sequences times E / (K T N)
  std::int64_t sequence;
  std::int32_t const*
      sequence_counts; // [sequences x experts] tokens that have the expert among their K largest gates
  T* logits_gradient;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const* const p = probabilities + i * num_experts;
    auto* const dl = logits_gradient + i * num_experts;
    if (has_sigmoids) return set_of_sigmoids(i, p, dl);
    for (std::int64_t e = 0; e < num_experts; ++e)
      dl[e] = balance * shares[e];
    for (auto choice = i * num_choices; !normalizes && choice < (i + 1) * num_choices; ++choice)
      if (experts[choice] >= 0) dl[experts[choice]] += scale * weight_gradient[choice];
    T inner = 0;
    for (std::int64_t e = 0; e < num_experts; ++e)
      inner += p[e] * dl[e];
    for (std::int64_t e = 0; e < num_experts; ++e)
      dl[e] = p[e] * (dl[e] - inner + z * log_sum_exp[i]);
    if (normalizes) add_of_shares(i, dl);
  }

  /// dl_k = (dw_k - sum_j dw_j w_j / s) w_k (1 - p_k), or s dw_k p_k (1 - p_k) without normalization.
  KOKKOS_FUNCTION void set_of_sigmoids(std::int64_t i, T const* p, T* dl) const {
    for (std::int64_t e = 0; e < num_experts; ++e)
      dl[e] = 0;
    T mean = 0;
    for (auto choice = i * num_choices; normalizes && choice < (i + 1) * num_choices; ++choice)
      if (experts[choice] >= 0) mean += weight_gradient[choice] * weights[choice];
    for (auto choice = i * num_choices; choice < (i + 1) * num_choices; ++choice)
      if (auto const e = experts[choice]; e >= 0)
        dl[e] = (weight_gradient[choice] - mean / scale) * weights[choice] * (1 - p[e]);
    if (of_sequences > 0) add_of_sequence(p, sequence_counts + i / sequence * num_experts, dl);
  }

  /// Adds C (c_e - sum_j c_j q_j) q_e (1 - p_e), with q_e = p_e / sum_j p_j and the counts c of the sequence.
  KOKKOS_FUNCTION void add_of_sequence(T const* p, std::int32_t const* counts, T* dl) const {
    T sum = 0, inner = 0;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      sum += p[e];
      inner += static_cast<T>(counts[e]) * p[e];
    }
    for (std::int64_t e = 0; sum > 0 && e < num_experts; ++e)
      dl[e] += of_sequences * (static_cast<T>(counts[e]) - inner / sum) * (p[e] / sum) * (1 - p[e]);
  }

  /// Adds the gradient through w_k = p_k / S. Because sum_k p_k dp_k is 0, only the logits of kept choices get a term.
  KOKKOS_FUNCTION void add_of_shares(std::int64_t i, T* dl) const {
    T mean = 0;
    for (auto choice = i * num_choices; choice < (i + 1) * num_choices; ++choice)
      if (experts[choice] >= 0) mean += weight_gradient[choice] * weights[choice];
    for (auto choice = i * num_choices; choice < (i + 1) * num_choices; ++choice)
      if (experts[choice] >= 0)
        dl[experts[choice]] += weights[choice] * (weight_gradient[choice] - mean / scale);
  }
};

/// Counts the K largest gates of a row; of equal gates the lower number comes first.
template<class T>
struct CountLargest {
  T const* probabilities;
  std::int64_t num_experts, num_choices, sequence;
  std::int32_t* counts;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const* const p = probabilities + i * num_experts;
    std::int64_t last = -1;
    for (std::int64_t k = 0; k < num_choices; ++k) {
      std::int64_t best = -1;
      for (std::int64_t e = 0; e < num_experts; ++e) {
        auto const comes_later = last < 0 || p[e] < p[last] || (p[e] == p[last] && e > last);
        if (comes_later && (best < 0 || p[e] > p[best])) best = e;
      }
      if (best < 0) return; // the others are not numbers
      Kokkos::atomic_add(&counts[i / sequence * num_experts + best], 1);
      last = best;
    }
  }
};

LocalPass choose_pass(std::int64_t rows, std::int64_t experts, std::int64_t choices, std::int64_t scalar) {
  return {.name = "choose_experts",
          .bytes_read = rows * experts * scalar,
          .bytes_written = rows * (experts + 1) * scalar + rows * choices * expert_bytes,
          .exponentials = rows * experts};
}
LocalPass weigh_pass(std::int64_t rows, std::int64_t choices, std::int64_t scalar) {
  return {"weigh_experts", rows * choices * (scalar + expert_bytes), rows * choices * scalar};
}
LocalPass count_pass(std::int64_t rows, std::int64_t experts, std::int64_t choices, std::int64_t scalar) {
  return {"count_largest_gates", rows * experts * scalar, rows * choices * expert_bytes};
}
LocalPass biases_pass(std::int64_t experts, std::int64_t scalar) {
  return {"move_biases", 2 * experts * scalar, experts * scalar};
}
LocalPass backward_pass(std::int64_t rows, std::int64_t experts, std::int64_t choices, std::int64_t scalar) {
  return {"router_backward", rows * (experts + 1) * scalar + rows * choices * (2 * scalar + expert_bytes),
          rows * experts * scalar};
}

using Rows = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

} // namespace

template<class T>
Routing<T>::Routing(std::string const& label, std::int64_t num_rows, std::int64_t num_experts,
                    std::int64_t num_choices, bool normalizes_weights)
    : probabilities(label + "/probabilities", static_cast<std::size_t>(num_rows),
                    static_cast<std::size_t>(num_experts)),
      log_sum_exp(label + "/log_sum_exp", static_cast<std::size_t>(num_rows)),
      experts(label + "/experts", static_cast<std::size_t>(num_rows * num_choices)),
      weights(label + "/weights", static_cast<std::size_t>(num_rows * num_choices)),
      normalizes(normalizes_weights && num_choices > 1) {}

template<class T>
void choose_experts(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& logits,
                    RouterNoise const& noise, Routing<T> const& routing) {
  auto const rows = routing.num_rows();
  auto const num_experts = routing.num_experts();
  auto const num_choices = routing.num_choices();
  ORTHANT_REQUIRE(static_cast<std::int64_t>(logits.extent(0)) == rows &&
                      static_cast<std::int64_t>(logits.extent(1)) == num_experts &&
                      num_choices <= num_experts,
                  num_choices, " choices of ", num_experts, " experts for ", rows, " rows, from logits ",
                  logits.extent(0), " x ", logits.extent(1));
  passes.add(choose_pass(rows, num_experts, num_choices, sizeof(T)));
  Kokkos::parallel_for(
      "orthant::pmm::choose_experts", Rows(exec, 0, rows),
      Choose<T>{logits.data(), num_experts, num_choices, noise.deviation, noise.stream, noise.first_token,
                noise.tokens, routing.biases.extent(0) > 0 ? routing.biases.data() : nullptr,
                routing.probabilities.data(), routing.log_sum_exp.data(), routing.experts.data()});
}

template<class T>
void weigh_experts(DefaultExec const& exec, PassLedger& passes, Routing<T> const& routing) {
  passes.add(weigh_pass(routing.num_rows(), routing.num_choices(), sizeof(T)));
  Kokkos::parallel_for("orthant::pmm::weigh_experts", Rows(exec, 0, routing.num_rows()),
                       Weigh<T>{routing.probabilities.data(), routing.experts.data(), routing.num_experts(),
                                routing.num_choices(), routing.normalizes, static_cast<T>(routing.scale),
                                routing.weights.data()});
}

template<class T>
void router_backward(DefaultExec const& exec, PassLedger& passes, Routing<T> const& routing,
                     Vector<T> const& weight_gradient, RouterLosses<T> const& losses,
                     Matrix<T> const& logits_gradient) {
  auto const num_experts = routing.num_experts();
  auto const of_tokens = losses.num_tokens * static_cast<double>(routing.num_choices() * losses.sequence);
  auto const balances_sequences = losses.of_sequences > 0 && routing.num_rows() > 0;
  if (balances_sequences) {
    auto const num_counts = routing.num_rows() / losses.sequence * num_experts;
    ORTHANT_REQUIRE(routing.biases.extent(0) > 0 && routing.num_rows() % losses.sequence == 0 &&
                        static_cast<std::int64_t>(losses.sequence_counts.extent(0)) >= num_counts,
                    losses.sequence_counts.extent(0), " counts of sequences of ", losses.sequence, " in ",
                    routing.num_rows(), " rows, of sigmoid gates alone");
    passes.add(count_pass(routing.num_rows(), num_experts, routing.num_choices(), sizeof(T)));
    Kokkos::deep_copy(exec, losses.sequence_counts, 0);
    Kokkos::parallel_for("orthant::pmm::count_largest_gates", Rows(exec, 0, routing.num_rows()),
                         CountLargest<T>{routing.probabilities.data(), num_experts, routing.num_choices(),
                                         losses.sequence, losses.sequence_counts.data()});
  }
  passes.add(backward_pass(routing.num_rows(), num_experts, routing.num_choices(), sizeof(T)));
  Kokkos::parallel_for(
      "orthant::pmm::router_backward", Rows(exec, 0, routing.num_rows()),
      Backward<T>{routing.probabilities.data(), routing.log_sum_exp.data(), routing.experts.data(),
                  routing.weights.data(), weight_gradient.data(), losses.shares.data(), num_experts,
                  routing.num_choices(), routing.normalizes, routing.biases.extent(0) > 0,
                  static_cast<T>(routing.scale),
                  static_cast<T>(losses.balance * static_cast<double>(num_experts) / losses.num_tokens),
                  static_cast<T>(2 * losses.z / losses.num_tokens),
                  static_cast<T>(balances_sequences
                                     ? losses.of_sequences * static_cast<double>(num_experts) / of_tokens
                                     : 0),
                  losses.sequence, losses.sequence_counts.data(), logits_gradient.data()});
}

template<class T>
void move_biases(DefaultExec const& exec, PassLedger& passes, Vector<T> const& biases,
                 Vector<T> const& shares, double step, double factor, Vector<T> const& targets) {
  auto const num_experts = static_cast<std::int64_t>(biases.extent(0));
  passes.add(biases_pass(num_experts, sizeof(T)));
  auto const its_step = static_cast<T>(step), its_factor = static_cast<T>(factor);
  auto const mean = T{1} / static_cast<T>(num_experts);
  auto const rounding = mean * static_cast<T>(1e-6); // of the shares
  T const* const from = biases.data();
  T const* const share = shares.data();
  T* const to = targets.data();
  Kokkos::parallel_for(
      "orthant::pmm::move_biases", Rows(exec, 0, num_experts), KOKKOS_LAMBDA(std::int64_t e) {
        auto const error = mean - share[e];
        auto const sign = error > rounding ? T{1} : error < -rounding ? T{-1} : T{0};
        to[e] = its_factor * (from[e] + its_step * sign);
      });
}

void plan_move_biases(StepPlan& step, std::int64_t num_experts) {
  step.add_pass(biases_pass(num_experts, step.scalar_bytes(1)));
}

void plan_choose_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                         std::int64_t num_choices) {
  step.add_pass(choose_pass(num_rows, num_experts, num_choices, step.scalar_bytes(1)));
}
void plan_weigh_experts(StepPlan& step, std::int64_t num_rows, std::int64_t num_choices) {
  step.add_pass(weigh_pass(num_rows, num_choices, step.scalar_bytes(1)));
}
void plan_router_backward(StepPlan& step, std::int64_t num_rows, std::int64_t num_experts,
                          std::int64_t num_choices, bool balances_sequences) {
  if (balances_sequences && num_rows > 0)
    step.add_pass(count_pass(num_rows, num_experts, num_choices, step.scalar_bytes(1)));
  step.add_pass(backward_pass(num_rows, num_experts, num_choices, step.scalar_bytes(1)));
}

void plan_routing(StepPlan& step, std::string const& label, std::int64_t num_rows, std::int64_t num_experts,
                  std::int64_t num_choices) {
  step.add_array(label + "/probabilities", step.scalar_bytes(num_rows * num_experts));
  step.add_array(label + "/log_sum_exp", step.scalar_bytes(num_rows));
  step.add_array(label + "/experts", num_rows * num_choices * expert_bytes);
  step.add_array(label + "/weights", step.scalar_bytes(num_rows * num_choices));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct Routing<T>;                                                                                \
  template void choose_experts(DefaultExec const&, PassLedger&, Matrix<T> const&, RouterNoise const&,        \
                               Routing<T> const&);                                                           \
  template void weigh_experts(DefaultExec const&, PassLedger&, Routing<T> const&);                           \
  template void move_biases(DefaultExec const&, PassLedger&, Vector<T> const&, Vector<T> const&, double,     \
                            double, Vector<T> const&);                                                       \
  template void router_backward(DefaultExec const&, PassLedger&, Routing<T> const&, Vector<T> const&,        \
                                RouterLosses<T> const&, Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
