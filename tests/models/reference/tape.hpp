#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Dense matrices whose operations are written down, so that gradients follow by the chain rule: a serial reference for
// networks that are written as equations. Every operation is a loop of its definition.

#include "support/reference.hpp"

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace orthant::testing {

inline void add_to(Dense& sum, Dense const& addend, double factor = 1) {
  for (std::size_t k = 0; k < sum.numbers.size(); ++k)
    sum.numbers[k] += factor * addend.numbers[k];
}

class Tape {
 public:
  struct Entry {
    Dense value;
    Dense gradient;
    std::function<void()> back; // adds to the gradients of what it is made of
  };
  using Number = Entry*;

  [[nodiscard]] Number leaf(Dense const& value) {
    entries_.push_back({value, Dense(value.rows, value.columns), {}});
    return &entries_.back();
  }
  /// A B
  [[nodiscard]] Number product(Number a, Number b) {
    auto const c = leaf(testing::product(a->value, b->value));
    c->back = [=] {
      add_to(a->gradient, testing::product(c->gradient, transposed(b->value)));
      add_to(b->gradient, testing::product(transposed(a->value), c->gradient));
    };
    return c;
  }
  /// A B of a matrix that has no gradient.
  [[nodiscard]] Number product(Dense const& a, Number b) {
    auto const c = leaf(testing::product(a, b->value));
    c->back = [=] { add_to(b->gradient, testing::product(transposed(a), c->gradient)); };
    return c;
  }
  /// c_ij = max of b_kj over the k with a_ik != 0, the first of equals; 0 if there are none.
  [[nodiscard]] Number maximum(Dense const& a, Number b) {
    auto const c = leaf(Dense(a.rows, b->value.columns));
    std::vector<std::int64_t> taken;
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < b->value.columns; ++j) {
        std::int64_t best = -1;
        for (std::int64_t k = 0; k < a.columns; ++k)
          if (a(i, k) != 0 && (best < 0 || b->value(k, j) > b->value(best, j))) best = k;
        if (best >= 0) c->value(i, j) = b->value(best, j);
        taken.push_back(best);
      }
    c->back = [=] {
      for (std::int64_t i = 0; i < c->value.rows; ++i)
        for (std::int64_t j = 0; j < c->value.columns; ++j)
          if (auto const k = taken[static_cast<std::size_t>(i * c->value.columns + j)]; k >= 0)
            b->gradient(k, j) += c->gradient(i, j);
    };
    return c;
  }
  /// c_ij = the larger of a_ij and b_ij, a_ij if they are equal.
  [[nodiscard]] Number larger(Number a, Number b) {
    auto const c = leaf(a->value);
    for (std::size_t k = 0; k < c->value.numbers.size(); ++k)
      c->value.numbers[k] = std::max(a->value.numbers[k], b->value.numbers[k]);
    c->back = [=] {
      for (std::size_t k = 0; k < c->value.numbers.size(); ++k)
        (b->value.numbers[k] > a->value.numbers[k] ? b : a)->gradient.numbers[k] += c->gradient.numbers[k];
    };
    return c;
  }
  /// A^T
  [[nodiscard]] Number transpose(Number a) {
    auto const c = leaf(transposed(a->value));
    c->back = [=] { add_to(a->gradient, transposed(c->gradient)); };
    return c;
  }
  /// A + factor B
  [[nodiscard]] Number sum(Number a, Number b, double factor = 1) {
    auto const c = leaf(a->value);
    add_to(c->value, b->value, factor);
    c->back = [=] {
      add_to(a->gradient, c->gradient);
      add_to(b->gradient, c->gradient, factor);
    };
    return c;
  }
  /// p A + q B
  [[nodiscard]] Number combination(double p, Number a, double q, Number b) {
    auto const c = leaf(Dense(a->value.rows, a->value.columns));
    add_to(c->value, a->value, p);
    add_to(c->value, b->value, q);
    c->back = [=] {
      add_to(a->gradient, c->gradient, p);
      add_to(b->gradient, c->gradient, q);
    };
    return c;
  }
  /// (1 + e) A, e of one number.
  [[nodiscard]] Number scaled(Number a, Number e) {
    auto const c = leaf(a->value);
    for (auto& number : c->value.numbers)
      number *= 1 + e->value(0, 0);
    c->back = [=] {
      add_to(a->gradient, c->gradient, 1 + e->value(0, 0));
      for (std::size_t k = 0; k < c->gradient.numbers.size(); ++k)
        e->gradient(0, 0) += c->gradient.numbers[k] * a->value.numbers[k];
    };
    return c;
  }
  /// A + 1 b^T, b a row.
  [[nodiscard]] Number with_bias(Number a, Number b) {
    auto const c = leaf(a->value);
    for (std::int64_t i = 0; i < c->value.rows; ++i)
      for (std::int64_t j = 0; j < c->value.columns; ++j)
        c->value(i, j) += b->value(0, j);
    c->back = [=] {
      add_to(a->gradient, c->gradient);
      for (std::int64_t i = 0; i < c->value.rows; ++i)
        for (std::int64_t j = 0; j < c->value.columns; ++j)
          b->gradient(0, j) += c->gradient(i, j);
    };
    return c;
  }
  [[nodiscard]] Number relu(Number a) {
    auto const c = leaf(a->value);
    for (auto& number : c->value.numbers)
      number = std::max(number, 0.0);
    c->back = [=] {
      for (std::size_t k = 0; k < c->value.numbers.size(); ++k)
        if (a->value.numbers[k] > 0) a->gradient.numbers[k] += c->gradient.numbers[k];
    };
    return c;
  }
  /// f element by element, with its derivative.
  template<class Function, class Derivative>
  [[nodiscard]] Number element_wise(Number a, Function const& f, Derivative const& derivative) {
    auto const c = leaf(a->value);
    for (auto& number : c->value.numbers)
      number = f(number);
    c->back = [=] {
      for (std::size_t k = 0; k < c->value.numbers.size(); ++k)
        a->gradient.numbers[k] += c->gradient.numbers[k] * derivative(a->value.numbers[k]);
    };
    return c;
  }
  /// z where z > 0, else exp(z) - 1 (arXiv 1511.07289).
  [[nodiscard]] Number elu(Number a) {
    return element_wise(
        a, [](double z) { return z > 0 ? z : std::exp(z) - 1; },
        [](double z) { return z > 0 ? 1 : std::exp(z); });
  }
  /// z Phi(z), Phi the distribution of the normal distribution (arXiv 1606.08415).
  [[nodiscard]] Number gelu(Number a) {
    auto const distribution = [](double z) { return (1 + std::erf(z / std::sqrt(2.0))) / 2; };
    return element_wise(
        a, [=](double z) { return z * distribution(z); },
        [=](double z) {
          return distribution(z) + z * std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
        });
  }
  /// z / (1 + exp(-z)) (arXiv 1710.05941).
  [[nodiscard]] Number silu(Number a) {
    auto const logistic = [](double z) { return 1 / (1 + std::exp(-z)); };
    return element_wise(
        a, [=](double z) { return z * logistic(z); },
        [=](double z) { return logistic(z) + z * logistic(z) * (1 - logistic(z)); });
  }
  [[nodiscard]] Number tanh(Number a) {
    return element_wise(
        a, [](double z) { return std::tanh(z); }, [](double z) { return 1 / std::pow(std::cosh(z), 2); });
  }
  /// D G with D_i = (mean_j a_ij^2 + epsilon)^-1/2 and G = diag(g): RMSNorm (Zhang & Sennrich, arXiv 1910.07467).
  [[nodiscard]] Number rms_norm(Number a, Number g, double epsilon) {
    auto const c = leaf(a->value);
    auto const width = a->value.columns;
    std::vector<double> inverse;
    for (std::int64_t i = 0; i < a->value.rows; ++i) {
      auto squares = 0.0;
      for (std::int64_t j = 0; j < width; ++j)
        squares += a->value(i, j) * a->value(i, j);
      inverse.push_back(1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
      for (std::int64_t j = 0; j < width; ++j)
        c->value(i, j) *= inverse.back() * g->value(0, j);
    }
    c->back = [=] {
      for (std::int64_t i = 0; i < a->value.rows; ++i) {
        auto const r = inverse[static_cast<std::size_t>(i)];
        auto along = 0.0; // of the gradient by D a
        for (std::int64_t j = 0; j < width; ++j) {
          g->gradient(0, j) += c->gradient(i, j) * a->value(i, j) * r;
          along += c->gradient(i, j) * g->value(0, j) * a->value(i, j);
        }
        for (std::int64_t j = 0; j < width; ++j)
          a->gradient(i, j) += r * c->gradient(i, j) * g->value(0, j) -
                               r * r * r * along * a->value(i, j) / static_cast<double>(width);
      }
    };
    return c;
  }
  /// N G + 1 b^T, n_ij = (a_ij - m) / sqrt(v + epsilon) with mean m and variance v (of n numbers, divided by n) over each row: LayerNorm
  /// (Ba et al., arXiv 1607.06450); or over each column: BatchNorm (Ioffe & Szegedy, arXiv 1502.03167, algorithm 1).
  enum class Over : std::uint8_t { row, column };
  struct Moments {
    std::vector<double> mean, variance;
  };
  [[nodiscard]] Number centered_norm(Number a, Number g, Number b, Over over, double epsilon,
                                     Moments* moments = nullptr) {
    auto const is_row = over == Over::row;
    auto const num_groups = is_row ? a->value.rows : a->value.columns;
    auto const count = is_row ? a->value.columns : a->value.rows;
    auto const at = [is_row](Dense& m, std::int64_t group, std::int64_t k) -> double& {
      return is_row ? m(group, k) : m(k, group);
    };
    auto const c = leaf(a->value);
    auto normalised = a->value;
    std::vector<double> inverse;
    for (std::int64_t group = 0; group < num_groups; ++group) {
      auto mean = 0.0, variance = 0.0;
      for (std::int64_t k = 0; k < count; ++k)
        mean += at(a->value, group, k) / static_cast<double>(count);
      for (std::int64_t k = 0; k < count; ++k)
        variance += std::pow(at(a->value, group, k) - mean, 2) / static_cast<double>(count);
      inverse.push_back(1 / std::sqrt(variance + epsilon));
      for (std::int64_t k = 0; k < count; ++k)
        at(normalised, group, k) = (at(a->value, group, k) - mean) * inverse.back();
      if (moments != nullptr) moments->mean.push_back(mean);
      if (moments != nullptr) moments->variance.push_back(variance);
    }
    for (std::int64_t i = 0; i < c->value.rows; ++i)
      for (std::int64_t j = 0; j < c->value.columns; ++j)
        c->value(i, j) = normalised(i, j) * g->value(0, j) + b->value(0, j);
    // da = (dn - mean(dn) - n mean(dn n)) / sqrt(v + epsilon), means over the group.
    c->back = [=]() mutable {
      auto dn = c->gradient;
      for (std::int64_t i = 0; i < dn.rows; ++i)
        for (std::int64_t j = 0; j < dn.columns; ++j) {
          g->gradient(0, j) += dn(i, j) * normalised(i, j);
          b->gradient(0, j) += dn(i, j);
          dn(i, j) *= g->value(0, j);
        }
      for (std::int64_t group = 0; group < num_groups; ++group) {
        auto mean = 0.0, along = 0.0;
        for (std::int64_t k = 0; k < count; ++k) {
          mean += at(dn, group, k) / static_cast<double>(count);
          along += at(dn, group, k) * at(normalised, group, k) / static_cast<double>(count);
        }
        for (std::int64_t k = 0; k < count; ++k)
          at(a->gradient, group, k) += (at(dn, group, k) - mean - at(normalised, group, k) * along) *
                                       inverse[static_cast<std::size_t>(group)];
      }
    };
    return c;
  }

  /// Columns first .. first + count of A.
  [[nodiscard]] Number columns(Number a, std::int64_t first, std::int64_t count) {
    auto const c = leaf(make_dense(a->value.rows, count,
                                   [&](std::int64_t i, std::int64_t j) { return a->value(i, first + j); }));
    c->back = [=] {
      for (std::int64_t i = 0; i < c->value.rows; ++i)
        for (std::int64_t j = 0; j < count; ++j)
          a->gradient(i, first + j) += c->gradient(i, j);
    };
    return c;
  }
  /// [A | B | ..]
  [[nodiscard]] Number side_by_side(std::vector<Number> const& parts) {
    std::int64_t width = 0;
    for (auto const* part : parts)
      width += part->value.columns;
    auto const c = leaf(Dense(parts.front()->value.rows, width));
    auto const visit = [parts](auto const& work) {
      std::int64_t first = 0;
      for (auto* const part : parts) {
        for (std::int64_t i = 0; i < part->value.rows; ++i)
          for (std::int64_t j = 0; j < part->value.columns; ++j)
            work(part, i, j, first + j);
        first += part->value.columns;
      }
    };
    visit([&](Number part, std::int64_t i, std::int64_t j, std::int64_t place) {
      c->value(i, place) = part->value(i, j);
    });
    c->back = [=] {
      visit([&](Number part, std::int64_t i, std::int64_t j, std::int64_t place) {
        part->gradient(i, j) += c->gradient(i, place);
      });
    };
    return c;
  }
  /// factor A
  [[nodiscard]] Number times(Number a, double factor) {
    return sum(leaf(Dense(a->value.rows, a->value.columns)), a, factor);
  }
  /// b_ij A, b_ij one number of B.
  [[nodiscard]] Number times(Number a, Number b, std::int64_t i, std::int64_t j) {
    auto const c = leaf(a->value);
    for (auto& number : c->value.numbers)
      number *= b->value(i, j);
    c->back = [=] {
      add_to(a->gradient, c->gradient, b->value(i, j));
      for (std::size_t k = 0; k < c->gradient.numbers.size(); ++k)
        b->gradient(i, j) += c->gradient.numbers[k] * a->value.numbers[k];
    };
    return c;
  }
  /// C_ij = s_i + t_j, of two columns.
  [[nodiscard]] Number outer_sum(Number s, Number t) {
    auto const c = leaf(make_dense(s->value.rows, t->value.rows, [&](std::int64_t i, std::int64_t j) {
      return s->value(i, 0) + t->value(j, 0);
    }));
    c->back = [=] {
      for (std::int64_t i = 0; i < c->value.rows; ++i)
        for (std::int64_t j = 0; j < c->value.columns; ++j) {
          s->gradient(i, 0) += c->gradient(i, j);
          t->gradient(j, 0) += c->gradient(i, j);
        }
    };
    return c;
  }
  [[nodiscard]] Number leaky_relu(Number a, double slope) {
    auto const c = leaf(a->value);
    for (auto& number : c->value.numbers)
      number *= number > 0 ? 1 : slope;
    c->back = [=] {
      for (std::size_t k = 0; k < c->value.numbers.size(); ++k)
        a->gradient.numbers[k] += c->gradient.numbers[k] * (a->value.numbers[k] > 0 ? 1 : slope);
    };
    return c;
  }
  /// exp(a_ij) / sum_j exp(a_ij) over the entries j of row i of a pattern; 0 elsewhere.
  [[nodiscard]] Number softmax_of_rows(Number a, Dense const& pattern) {
    auto const c = leaf(Dense(a->value.rows, a->value.columns));
    for (std::int64_t i = 0; i < c->value.rows; ++i) {
      auto sum = 0.0;
      for (std::int64_t j = 0; j < c->value.columns; ++j)
        sum += pattern(i, j) == 0 ? 0 : c->value(i, j) = std::exp(a->value(i, j));
      for (std::int64_t j = 0; j < c->value.columns; ++j)
        if (pattern(i, j) != 0) c->value(i, j) /= sum;
    }
    c->back = [=] {
      for (std::int64_t i = 0; i < c->value.rows; ++i) {
        auto along = 0.0;
        for (std::int64_t j = 0; j < c->value.columns; ++j)
          along += c->value(i, j) * c->gradient(i, j);
        for (std::int64_t j = 0; j < c->value.columns; ++j)
          a->gradient(i, j) += c->value(i, j) * (c->gradient(i, j) - along);
      }
    };
    return c;
  }

  /// The sum over the rows that are counted of -log softmax(row)[class], times `factor`; fills all gradients.
  double softmax_loss(Number logits, std::vector<std::int64_t> const& classes,
                      std::vector<char> const& counts, double factor) {
    auto loss = 0.0;
    for (std::int64_t i = 0; i < logits->value.rows; ++i) {
      auto const row = static_cast<std::size_t>(i);
      if (counts[row] == 0) continue;
      loss += factor * testing::softmax_loss(logits->value, i, classes[row]);
      for (std::int64_t j = 0; j < logits->value.columns; ++j) // softmax(row)[j] = exp(-its loss of class j)
        logits->gradient(i, j) +=
            factor * (std::exp(-testing::softmax_loss(logits->value, i, j)) - (j == classes[row] ? 1 : 0));
    }
    run_back();
    return loss;
  }
  /// Fills all gradients from those that were set.
  void run_back() {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
      if (entry->back) entry->back();
  }

 private:
  std::deque<Entry> entries_; // in the order in which they were made
};

} // namespace orthant::testing
