// SPDX-License-Identifier: Apache-2.0
#include "pmm/pairs/pair_layers.hpp"

namespace orthant::pmm {
namespace {

/// result_k := (or += if `keeps`) sum of values_e operand_l over the entries of list k; each entry has a pair e and its other row l.
template<class T>
struct SignedSums {
  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // null if entry e is pair e
  std::int64_t width;
  T const* values;
  T const* operand;
  T* result;
  bool keeps;

  KOKKOS_FUNCTION void operator()(std::int64_t k, std::int64_t) const {
    T* const sums = result + k * width;
    if (!keeps)
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] = 0;
    for (auto entry = offsets[k]; entry < offsets[k + 1]; ++entry) {
      auto const value = values[places == nullptr ? entry : places[entry]];
      T const* const from = operand + others[entry] * width;
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] += value * from[c];
    }
  }
};

template<class T>
struct LossOfPairs {
  T* scores;
  std::int64_t num_positive;
  double scale;
  double factor;

  KOKKOS_FUNCTION void operator()(std::int64_t e, double& sum) const {
    auto const z = static_cast<double>(scores[e]);
    auto const is_positive = e < num_positive;
    auto const power = ::exp(-::fabs(z)); // at most 1
    auto const wrong = is_positive ? -z : z;
    sum += scale * ((wrong > 0   ? wrong
                     : wrong < 0 ? 0.0
                                 : wrong) +
                    ::log1p(power)); // if `wrong` is NaN, it is kept
    scores[e] = static_cast<T>(factor * scale * pair_slope(z, is_positive));
  }
};

LocalPass pass_of_addition(std::int64_t bytes) {
  return {"add_numbers", 2 * bytes, bytes};
}

/// Counts an exponential and a logarithm per pair.
LocalPass pass_of_loss(std::int64_t num_pairs, std::int64_t scalar_bytes) {
  auto const bytes = num_pairs * scalar_bytes;
  return {.name = "pair_loss_and_gradient",
          .bytes_read = bytes,
          .bytes_written = bytes,
          .exponentials = 2 * num_pairs};
}

} // namespace

template<class T>
void pair_sums(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width, Vector<T> const& values,
               Vector<T> const& y, Vector<T> const& p, Update update) {
  for_each_row_and_head(exec, "orthant::pmm::pair_sums", block.num_rows, 1,
                        SignedSums<T>{block.row_offsets.data(), block.columns.data(), nullptr, width,
                                      values.data(), y.data(), p.data(), update == Update::add});
}

template<class T>
void pair_sums_transposed(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                          Vector<T> const& values, Vector<T> const& x, Vector<T> const& d, Update update) {
  for_each_row_and_head(exec, "orthant::pmm::pair_sums_transposed", block.num_columns, 1,
                        SignedSums<T>{block.column_offsets.data(), block.rows.data(), block.places.data(),
                                      width, values.data(), x.data(), d.data(), update == Update::add});
}

template<class T>
void pair_loss_and_gradient(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& scores,
                            std::int64_t num_positive, double scale, double factor,
                            runtime::Number<double> const& loss) {
  passes.add(pass_of_loss(static_cast<std::int64_t>(scores.size()), sizeof(T)));
  Kokkos::parallel_reduce(
      "orthant::pmm::pair_loss_and_gradient",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(scores.extent(0))),
      LossOfPairs<T>{scores.data(), num_positive, scale, factor}, loss);
}

void plan_pair_loss(StepPlan& step, std::int64_t num_pairs) {
  step.add_pass(pass_of_loss(num_pairs, step.scalar_bytes(1)));
}

template<class T>
void add_numbers(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& from,
                 Vector<T> const& to) {
  passes.add(pass_of_addition(runtime::array_bytes(to)));
  Kokkos::parallel_for(
      "orthant::pmm::add_numbers",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(to.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) += from(i); });
}

void plan_add_numbers(StepPlan& step, std::int64_t count) {
  step.add_pass(pass_of_addition(step.scalar_bytes(count)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void pair_sums(DefaultExec const&, EdgeBlock const&, std::int64_t, Vector<T> const&,              \
                          Vector<T> const&, Vector<T> const&, Update);                                       \
  template void pair_sums_transposed(DefaultExec const&, EdgeBlock const&, std::int64_t, Vector<T> const&,   \
                                     Vector<T> const&, Vector<T> const&, Update);                            \
  template void pair_loss_and_gradient(DefaultExec const&, runtime::PassLedger&, Vector<T> const&,           \
                                       std::int64_t, double, double, runtime::Number<double> const&);        \
  template void add_numbers(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

using runtime::Range;

LocalPass pass_of_products(std::int64_t bytes) {
  return {"multiply_pairs", 2 * bytes, bytes};
}
LocalPass pass_of_scores(std::int64_t hidden_bytes, std::int64_t score_bytes) {
  return {"score_hidden", hidden_bytes, score_bytes};
}
LocalPass pass_of_derivatives(std::int64_t hidden_bytes, std::int64_t score_bytes) {
  return {"differentiate_hidden", hidden_bytes + score_bytes, 2 * hidden_bytes + score_bytes};
}
/// Reads the gradients of pairs and the rows of their other ends, and updates the sums in place.
LocalPass pass_of_sums(std::int64_t pair_bytes, std::int64_t sum_bytes, bool is_transposed) {
  return {is_transposed ? "add_pair_gradients_transposed" : "add_pair_gradients", 2 * pair_bytes + sum_bytes,
          sum_bytes};
}

template<class T>
struct Products {
  Offset const* offsets;
  LocalColumn const* columns;
  Range pairs;
  std::int64_t width;
  T const* x;
  T const* y;
  T* products;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t) const {
    auto const begin = offsets[row] > pairs.begin ? offsets[row] : pairs.begin;
    auto const end = offsets[row + 1] < pairs.end ? offsets[row + 1] : pairs.end;
    T const* const of_row = x + row * width;
    for (auto e = begin; e < end; ++e) {
      T const* const of_column = y + columns[e] * width;
      T* const product = products + (e - pairs.begin) * width;
      for (std::int64_t c = 0; c < width; ++c)
        product[c] = of_row[c] * of_column[c];
    }
  }
};

template<class T>
struct HiddenNumbers {
  explicit HiddenNumbers(HiddenLayer<T> const& layer)
      : width(layer.width()),
        bias(layer.bias.extent(0) == 0 ? nullptr : layer.bias.data()),
        output_weight(layer.output_weight.data()),
        output_bias(layer.output_bias.extent(0) == 0 ? nullptr : layer.output_bias.data()) {}

  std::int64_t width;
  T const* bias;
  T const* output_weight;
  T const* output_bias;

  /// relu(z + b); NaN is kept.
  KOKKOS_FUNCTION T activated(T const* z, std::int64_t k) const {
    auto const h = bias == nullptr ? z[k] : z[k] + bias[k];
    return h <= 0 ? T{0} : h;
  }
};

template<class T>
struct Scores {
  HiddenNumbers<T> layer;
  T const* z;
  T* scores;

  KOKKOS_FUNCTION void operator()(std::int64_t e) const {
    T sum = layer.output_bias == nullptr ? T{0} : *layer.output_bias;
    for (std::int64_t k = 0; k < layer.width; ++k)
      sum += layer.activated(z + e * layer.width, k) * layer.output_weight[k];
    scores[e] = sum;
  }
};

template<class T>
struct Derivatives {
  HiddenNumbers<T> layer;
  T const* scores;
  bool is_positive;
  double weight;
  T* z;
  T* dz;
  T* slopes;

  KOKKOS_FUNCTION void operator()(std::int64_t e) const {
    auto const slope = static_cast<T>(weight * pair_slope(static_cast<double>(scores[e]), is_positive));
    slopes[e] = slope;
    T* const of_pair = z + e * layer.width;
    for (std::int64_t k = 0; k < layer.width; ++k) {
      auto const activated = layer.activated(of_pair, k);
      of_pair[k] = activated;
      dz[e * layer.width + k] = activated == 0 ? T{0} : slope * layer.output_weight[k];
    }
  }
};

/// sums_i += sum of dproducts_e * operand_j over the pairs e of list i that are in the range.
template<class T>
struct GradientSums {
  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // ascending within a list; null if entry e is pair e
  Range pairs;
  std::int64_t width;
  T const* dproducts;
  T const* operand;
  T* sums;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t pair_of(std::int64_t entry) const {
    return places == nullptr ? entry : places[entry];
  }
  /// The first entry of [begin, end) whose pair is in the range or after it.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t first_entry(std::int64_t begin, std::int64_t end) const {
    while (begin < end) {
      auto const middle = begin + (end - begin) / 2;
      if (pair_of(middle) < pairs.begin)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
  KOKKOS_FUNCTION void operator()(std::int64_t list, std::int64_t) const {
    T* const sum = sums + list * width;
    auto const end = offsets[list + 1];
    for (auto entry = first_entry(offsets[list], end); entry < end; ++entry) {
      auto const e = pair_of(entry);
      if (e >= pairs.end) break;
      T const* const of_pair = dproducts + (e - pairs.begin) * width;
      T const* const other = operand + others[entry] * width;
      for (std::int64_t c = 0; c < width; ++c)
        sum[c] += of_pair[c] * other[c];
    }
  }
};

template<class T>
std::int64_t bytes_of_pairs(Range const& pairs, std::int64_t width) {
  return pairs.size() * width * static_cast<std::int64_t>(sizeof(T));
}

} // namespace

template<class T>
void multiply_pairs(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    Range const& pairs, std::int64_t width, Vector<T> const& x, Vector<T> const& y,
                    Vector<T> const& products) {
  if (pairs.size() * width == 0) return;
  passes.add(pass_of_products(bytes_of_pairs<T>(pairs, width)));
  for_each_row_and_head(exec, "orthant::pmm::multiply_pairs", block.num_rows, 1,
                        Products<T>{block.row_offsets.data(), block.columns.data(), pairs, width, x.data(),
                                    y.data(), products.data()});
}

void plan_multiply_pairs(StepPlan& step, std::int64_t num_pairs, std::int64_t width) {
  step.add_pass(pass_of_products(step.scalar_bytes(num_pairs * width)));
}

template<class T>
void score_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                  Vector<T> const& z, Vector<T> const& scores) {
  auto const num_pairs = static_cast<std::int64_t>(scores.extent(0));
  if (num_pairs == 0) return;
  passes.add(pass_of_scores(bytes_of_pairs<T>({0, num_pairs}, layer.width()), runtime::array_bytes(scores)));
  Kokkos::parallel_for("orthant::pmm::score_hidden",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_pairs),
                       Scores<T>{HiddenNumbers<T>(layer), z.data(), scores.data()});
}

void plan_score_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden) {
  step.add_pass(pass_of_scores(step.scalar_bytes(num_pairs * hidden), step.scalar_bytes(num_pairs)));
}

template<class T>
void differentiate_hidden(DefaultExec const& exec, runtime::PassLedger& passes, HiddenLayer<T> const& layer,
                          Vector<T> const& scores, bool is_positive, double weight, Vector<T> const& z,
                          Vector<T> const& dz, Vector<T> const& slopes) {
  auto const num_pairs = static_cast<std::int64_t>(scores.extent(0));
  if (num_pairs == 0) return;
  passes.add(
      pass_of_derivatives(bytes_of_pairs<T>({0, num_pairs}, layer.width()), runtime::array_bytes(scores)));
  Kokkos::parallel_for("orthant::pmm::differentiate_hidden",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_pairs),
                       Derivatives<T>{HiddenNumbers<T>(layer), scores.data(), is_positive, weight, z.data(),
                                      dz.data(), slopes.data()});
}

void plan_differentiate_hidden(StepPlan& step, std::int64_t num_pairs, std::int64_t hidden) {
  step.add_pass(pass_of_derivatives(step.scalar_bytes(num_pairs * hidden), step.scalar_bytes(num_pairs)));
}

template<class T>
void add_pair_gradients(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                        Range const& pairs, std::int64_t width, Vector<T> const& dproducts,
                        Vector<T> const& y, Vector<T> const& dx) {
  if (pairs.size() * width == 0) return;
  passes.add(
      pass_of_sums(bytes_of_pairs<T>(pairs, width), bytes_of_pairs<T>({0, block.num_rows}, width), false));
  for_each_row_and_head(exec, "orthant::pmm::add_pair_gradients", block.num_rows, 1,
                        GradientSums<T>{block.row_offsets.data(), block.columns.data(), nullptr, pairs, width,
                                        dproducts.data(), y.data(), dx.data()});
}

template<class T>
void add_pair_gradients_transposed(DefaultExec const& exec, runtime::PassLedger& passes,
                                   EdgeBlock const& block, Range const& pairs, std::int64_t width,
                                   Vector<T> const& dproducts, Vector<T> const& x, Vector<T> const& dy) {
  if (pairs.size() * width == 0) return;
  passes.add(
      pass_of_sums(bytes_of_pairs<T>(pairs, width), bytes_of_pairs<T>({0, block.num_columns}, width), true));
  for_each_row_and_head(exec, "orthant::pmm::add_pair_gradients_transposed", block.num_columns, 1,
                        GradientSums<T>{block.column_offsets.data(), block.rows.data(), block.places.data(),
                                        pairs, width, dproducts.data(), x.data(), dy.data()});
}

void plan_add_pair_gradients(StepPlan& step, std::int64_t num_pairs, std::int64_t num_sums,
                             std::int64_t width, bool is_transposed) {
  step.add_pass(
      pass_of_sums(step.scalar_bytes(num_pairs * width), step.scalar_bytes(num_sums * width), is_transposed));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void multiply_pairs(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, Range const&,     \
                               std::int64_t, Vector<T> const&, Vector<T> const&, Vector<T> const&);          \
  template void score_hidden(DefaultExec const&, runtime::PassLedger&, HiddenLayer<T> const&,                \
                             Vector<T> const&, Vector<T> const&);                                            \
  template void differentiate_hidden(DefaultExec const&, runtime::PassLedger&, HiddenLayer<T> const&,        \
                                     Vector<T> const&, bool, double, Vector<T> const&, Vector<T> const&,     \
                                     Vector<T> const&);                                                      \
  template void add_pair_gradients(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, Range const&, \
                                   std::int64_t, Vector<T> const&, Vector<T> const&, Vector<T> const&);      \
  template void add_pair_gradients_transposed(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&,    \
                                              Range const&, std::int64_t, Vector<T> const&,                  \
                                              Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
