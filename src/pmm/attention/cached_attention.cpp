// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/attention.hpp"

#include "runtime/arrays/views.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"

#include <cmath>

namespace orthant::pmm {
namespace {

using runtime::DefaultExec, runtime::PassLedger, runtime::Vector;
using TokenPolicy = Kokkos::TeamPolicy<DefaultExec>;

constexpr std::int64_t values_at_once = 16; // columns of the values that a thread sums in registers

/// A team computes o of one query head of a sequence.
template<class T>
struct AttendToken {
  AttentionShape shape;
  AttentionOperands<T> in;
  std::int64_t const* positions;
  Panel<T> out;
  T* scores;
  T scale;

  KOKKOS_FUNCTION void operator()(typename TokenPolicy::member_type const& team) const {
    auto const item = static_cast<std::int64_t>(team.league_rank());
    auto const s = item / shape.num_heads;
    auto const head = item % shape.num_heads;
    auto const d = shape.head_dim;
    auto const num_keys = positions[s] + 1;
    auto const kv_column = head / shape.heads_per_kv_head() * d;
    auto const* const q = in.q.data + s * in.q.row_stride + head * d;
    auto const* const k = in.k.data + s * shape.sequence * in.k.row_stride + kv_column;
    auto const* const v = in.v.data + s * shape.sequence * in.v.row_stride + kv_column;
    auto* const o = out.data + s * out.row_stride + head * d;
    auto* const p = scores + item * shape.sequence;
    T largest = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, num_keys),
        [&](std::int64_t j, T& most) {
          T sum = 0;
          for (std::int64_t c = 0; c < d; ++c)
            sum += q[c] * k[j * in.k.row_stride + c];
          p[j] = scale * sum;
          most = p[j] > most ? p[j] : most;
        },
        Kokkos::Max<T>(largest));
    T sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, num_keys),
        [&](std::int64_t j, T& part) {
          p[j] = runtime::compat::exp(p[j] - largest);
          part += p[j];
        },
        sum);
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, (d + values_at_once - 1) / values_at_once),
                         [&](std::int64_t block) {
                           auto const first = block * values_at_once;
                           auto const count = d - first < values_at_once ? d - first : values_at_once;
                           T sums[values_at_once] = {};
                           for (std::int64_t j = 0; j < num_keys; ++j)
                             for (std::int64_t c = 0; c < count; ++c)
                               sums[c] += p[j] * v[j * in.v.row_stride + first + c];
                           for (std::int64_t c = 0; c < count; ++c)
                             o[first + c] = sums[c] / sum;
                         });
  }
};

template<class T>
struct AppendRows {
  Panel<T> from, cache;
  std::int64_t const* starts;
  std::int64_t sequence, capacity;

  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    auto const row = k / from.num_columns;
    auto const column = k % from.num_columns;
    auto const s = row / sequence;
    auto const to = s * capacity + starts[s] + row % sequence;
    cache.data[to * cache.row_stride + column] = from.data[row * from.row_stride + column];
  }
};

} // namespace

template<class T>
void append_rows(DefaultExec const& exec, PassLedger& passes, Vector<std::int64_t> const& starts,
                 std::int64_t sequence, std::int64_t capacity, Panel<T> const& from,
                 std::type_identity_t<Panel<T>> const& cache) {
  ORTHANT_REQUIRE(from.num_columns == cache.num_columns && sequence > 0 &&
                      from.num_rows / sequence * capacity == cache.num_rows,
                  "rows ", from.num_rows, " x ", from.num_columns, " of sequences of ", sequence,
                  " for a cache ", cache.num_rows, " x ", cache.num_columns);
  auto const size = from.num_rows * from.num_columns;
  passes.add({"append_rows", size * std::int64_t{sizeof(T)}, size * std::int64_t{sizeof(T)}});
  Kokkos::parallel_for("orthant::pmm::append_rows",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, size),
                       AppendRows<T>{from, cache, starts.data(), sequence, capacity});
}

template<class T>
void attend_cached(DefaultExec const& exec, PassLedger& passes, AttentionShape const& shape,
                   AttentionOperands<T> const& operands, Vector<std::int64_t> const& positions,
                   std::type_identity_t<Panel<T>> const& out, Vector<T> const& scores) {
  auto const num_teams = shape.num_sequences * shape.num_heads;
  ORTHANT_REQUIRE(operands.q.num_rows == shape.num_sequences && out.num_rows == shape.num_sequences &&
                      operands.k.num_rows == shape.num_tokens() &&
                      operands.v.num_rows == shape.num_tokens() &&
                      std::ssize(scores) >= num_teams * shape.sequence,
                  "attention of ", operands.q.num_rows, " tokens to ", operands.k.num_rows, " keys with ",
                  scores.size(), " scores");
  if (num_teams == 0) return;
  auto const scalar = std::int64_t{sizeof(T)};
  passes.add({"attend_cached", 2 * shape.num_tokens() * shape.key_columns() * scalar,
              shape.num_sequences * shape.query_columns() * scalar});
  auto const scale = static_cast<T>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  Kokkos::parallel_for("orthant::pmm::attend_cached",
                       TokenPolicy(exec, static_cast<int>(num_teams), Kokkos::AUTO),
                       AttendToken<T>{shape, operands, positions.data(), out, scores.data(), scale});
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void append_rows(DefaultExec const&, PassLedger&, Vector<std::int64_t> const&, std::int64_t,      \
                            std::int64_t, Panel<T> const&, Panel<T> const&);                                 \
  template void attend_cached(DefaultExec const&, PassLedger&, AttentionShape const&,                        \
                              AttentionOperands<T> const&, Vector<std::int64_t> const&, Panel<T> const&,     \
                              Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
