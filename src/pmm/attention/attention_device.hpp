#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of causal attention (equations: attention.hpp). A team processes a block of queries of one sequence and head,
// and loops over the blocks of keys that the queries see. Blocks are in shared memory; a thread holds four sums of a product of
// two blocks in registers. The backward pass has two kernels: the first loops over keys in the same order and computes dq; the
// second processes a block of keys, loops over the queries that see them, and computes dk and dv. So no element is written by
// two teams, and results have the same bits in every run. This needs seven products of blocks instead of five with atomic
// additions. The kernels run anywhere, on hosts with teams of one thread.

#include "pmm/attention/attention.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cmath>
#include <limits>

namespace orthant::pmm::detail {

using AttentionPolicy = Kokkos::TeamPolicy<runtime::DefaultExec>;
using AttentionTeam = typename AttentionPolicy::member_type;

template<class T>
struct AttentionTask {
  AttentionShape shape;
  AttentionOperands<T> in;
  T* log_sum_exp;
  T scale;
  int tile; // number of queries or keys per block
  runtime::RandomStream stream;
  std::int64_t const* token_ids;
  std::int64_t first_head, all_heads;
  std::uint64_t drop_threshold;
  T keep_scale;
  std::int64_t const* positions; // [tokens] in their documents; null: a sequence is one document

  AttentionTask(AttentionShape const& of, AttentionOperands<T> const& operands,
                runtime::Vector<T> const& sums, AttentionDropout const& dropout,
                std::int64_t const* in_documents, int size_of_tile)
      : shape(of),
        in(operands),
        log_sum_exp(sums.data()),
        scale(static_cast<T>(1 / ::sqrt(static_cast<double>(of.head_dim)))),
        tile(size_of_tile),
        stream(dropout.stream),
        token_ids(dropout.token_ids.data()),
        first_head(dropout.first_head),
        all_heads(dropout.num_heads),
        drop_threshold(runtime::bernoulli_threshold(dropout.probability)),
        keep_scale(static_cast<T>(1 / (1 - dropout.probability))),
        positions(in_documents) {}

  /// Place in its sequence of the first key that a query sees. It does not decrease from query to query.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t first_seen(std::int64_t first_token, std::int64_t query) const {
    return positions == nullptr ? 0 : query - positions[first_token + query];
  }
  [[nodiscard]] KOKKOS_FUNCTION bool sees(std::int64_t first_token, std::int64_t query,
                                          std::int64_t key) const {
    return key <= query && key >= first_seen(first_token, query);
  }
  /// For a query and a key that it sees, by their places in the sequence.
  [[nodiscard]] KOKKOS_FUNCTION T mask(std::int64_t first_token, std::int64_t query, std::int64_t head,
                                       std::int64_t key) const {
    if (drop_threshold == 0) return T{1};
    auto const row =
        static_cast<std::uint64_t>(token_ids[first_token + query] * all_heads + first_head + head);
    auto const column = static_cast<std::uint64_t>(key - first_seen(first_token, query));
    return stream.bits32(row, column) < drop_threshold ? T{0} : keep_scale;
  }
  [[nodiscard]] KOKKOS_FUNCTION int head_dim() const { return static_cast<int>(shape.head_dim); }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t num_blocks() const { return (shape.sequence + tile - 1) / tile; }
  /// Number of rows of a block; the last block may have fewer than `tile`.
  [[nodiscard]] KOKKOS_FUNCTION int rows_of(std::int64_t block) const {
    auto const left = shape.sequence - block * tile;
    return left < tile ? static_cast<int>(left) : tile;
  }
};

/// A block in shared memory. The row stride is an odd number of elements, so that the elements of a column are in different banks.
template<class T>
struct Tile {
  T* data;
  int stride;

  KOKKOS_FUNCTION Tile(AttentionTeam const& team, int rows, int columns)
      : data(static_cast<T*>(team.team_shmem().get_shmem_aligned(bytes_of(rows, columns), 16))),
        stride(columns | 1) {}
  KOKKOS_FUNCTION T& operator()(int i, int j) const { return data[i * stride + j]; }

  [[nodiscard]] KOKKOS_FUNCTION static std::size_t bytes_of(int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns | 1) * sizeof(T);
  }
};

template<class T>
KOKKOS_INLINE_FUNCTION T* place_of(Panel<T> const& panel, std::int64_t token, std::int64_t head,
                                   int head_dim) {
  return panel.data + token * panel.row_stride + head * head_dim;
}

/// Calls body(i, c) for all elements of a block. Neighboring threads get neighboring elements.
template<class Body>
KOKKOS_INLINE_FUNCTION void for_block(AttentionTeam const& team, int rows, int columns, Body const& body) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows * columns),
                       [&](int at) { body(at / columns, at % columns); });
}

/// Calls put(i, j, sum_l a(i, l) b(l, j)) for i < m, j < n. Ends with a team barrier.
template<class T, class A, class B, class Put>
KOKKOS_INLINE_FUNCTION void multiply_blocks(AttentionTeam const& team, int m, int n, int depth, A const& a,
                                            B const& b, Put const& put) {
  auto const pairs_of_columns = (n + 1) / 2;
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, (m + 1) / 2 * pairs_of_columns), [&](int at) {
    auto const i = 2 * (at / pairs_of_columns);
    auto const j = 2 * (at % pairs_of_columns);
    auto const below = i + 1 < m ? i + 1 : i;
    auto const right = j + 1 < n ? j + 1 : j;
    T sums[4] = {};
    for (int l = 0; l < depth; ++l) {
      auto const upper = a(i, l);
      auto const lower = a(below, l);
      auto const first = b(l, j);
      auto const second = b(l, right);
      sums[0] += upper * first;
      sums[1] += upper * second;
      sums[2] += lower * first;
      sums[3] += lower * second;
    }
    put(i, j, sums[0]);
    if (right > j) put(i, right, sums[1]);
    if (below > i) put(below, j, sums[2]);
    if (below > i && right > j) put(below, right, sums[3]);
  });
  team.team_barrier();
}

/// Computes o and L of a block of queries.
template<class T>
struct AttendBlock {
  AttentionTask<T> task;
  Panel<T> out;

  KOKKOS_FUNCTION void operator()(AttentionTeam const& team) const {
    auto const& shape = task.shape;
    auto const d = task.head_dim();
    auto const item = static_cast<std::int64_t>(team.league_rank());
    auto const block = task.num_blocks() - 1 - item % task.num_blocks(); // most keys first
    auto const head = item / task.num_blocks() % shape.num_heads;
    auto const kv_head = head / shape.heads_per_kv_head();
    auto const first_token = item / task.num_blocks() / shape.num_heads * shape.sequence;
    auto const first = block * task.tile;
    auto const rows = task.rows_of(block);
    Tile<T> const q(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d), o(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), numbers(team, 3, task.tile);
    auto* const largest = &numbers(0, 0);
    auto* const sums = &numbers(1, 0);
    auto* const shrink = &numbers(2, 0);
    auto const* const from = place_of(task.in.q, first_token + first, head, d);
    for_block(team, rows, d, [&](int i, int c) {
      q(i, c) = from[i * task.in.q.row_stride + c];
      o(i, c) = 0;
    });
    for (auto key_block = task.first_seen(first_token, first) / task.tile; key_block <= block; ++key_block) {
      auto const keys = task.rows_of(key_block);
      auto const first_key = key_block * task.tile;
      auto const* const from_k = place_of(task.in.k, first_token + first_key, kv_head, d);
      auto const* const from_v = place_of(task.in.v, first_token + first_key, kv_head, d);
      for_block(team, keys, d, [&](int j, int c) {
        k(j, c) = from_k[j * task.in.k.row_stride + c];
        v(j, c) = from_v[j * task.in.v.row_stride + c];
      });
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
          [&](int i, int j, T sum) { p(i, j) = task.scale * sum; });
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
        auto const query = first + i;
        auto const is_first = task.first_seen(first_token, query) >= first_key; // it has seen no earlier key
        auto top = is_first ? -std::numeric_limits<T>::infinity() : largest[i];
        for (int j = 0; j < keys; ++j)
          top = task.sees(first_token, query, first_key + j) && p(i, j) > top ? p(i, j) : top;
        shrink[i] = is_first ? T{0} : runtime::compat::exp(largest[i] - top);
        auto sum = is_first ? T{0} : sums[i] * shrink[i];
        for (int j = 0; j < keys; ++j) {
          auto const is_seen = task.sees(first_token, query, first_key + j);
          auto const number = is_seen ? runtime::compat::exp(p(i, j) - top) : T{0};
          sum += number;
          p(i, j) = is_seen ? number * task.mask(first_token, query, head, first_key + j) : T{0};
        }
        largest[i] = top;
        sums[i] = sum;
      });
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, d, keys, [&](int i, int l) { return p(i, l); }, [&](int l, int c) { return v(l, c); },
          [&](int i, int c, T sum) { o(i, c) = o(i, c) * shrink[i] + sum; });
    }
    auto* const to = place_of(out, first_token + first, head, d);
    for_block(team, rows, d, [&](int i, int c) { to[i * out.row_stride + c] = o(i, c) / sums[i]; });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      task.log_sum_exp[(first_token + first + i) * shape.num_heads + head] =
          largest[i] + runtime::compat::log(sums[i]);
    });
  }
};

/// Computes dq of a block of queries, and D of its rows.
template<class T>
struct AttendQueriesBackward {
  AttentionTask<T> task;
  Panel<T> out, d_out, dq;
  T* row_terms;

  KOKKOS_FUNCTION void operator()(AttentionTeam const& team) const {
    auto const& shape = task.shape;
    auto const d = task.head_dim();
    auto const item = static_cast<std::int64_t>(team.league_rank());
    auto const block = task.num_blocks() - 1 - item % task.num_blocks();
    auto const head = item / task.num_blocks() % shape.num_heads;
    auto const kv_head = head / shape.heads_per_kv_head();
    auto const first_token = item / task.num_blocks() / shape.num_heads * shape.sequence;
    auto const first = block * task.tile;
    auto const rows = task.rows_of(block);
    Tile<T> const q(team, task.tile, d), g(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d),
        sums(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), numbers(team, 2, task.tile);
    auto* const term = &numbers(0, 0);
    auto* const shift = &numbers(1, 0);
    auto const* const from_q = place_of(task.in.q, first_token + first, head, d);
    auto const* const from_g = place_of(d_out, first_token + first, head, d);
    auto const* const from_out = place_of(out, first_token + first, head, d);
    for_block(team, rows, d, [&](int i, int c) {
      q(i, c) = from_q[i * task.in.q.row_stride + c];
      g(i, c) = from_g[i * d_out.row_stride + c];
      sums(i, c) = 0;
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      auto const row = (first_token + first + i) * shape.num_heads + head;
      T sum = 0;
      for (int c = 0; c < d; ++c)
        sum += g(i, c) * from_out[i * out.row_stride + c];
      term[i] = row_terms[row] = sum;
      shift[i] = task.log_sum_exp[row];
    });
    for (auto key_block = task.first_seen(first_token, first) / task.tile; key_block <= block; ++key_block) {
      auto const keys = task.rows_of(key_block);
      auto const first_key = key_block * task.tile;
      auto const* const from_k = place_of(task.in.k, first_token + first_key, kv_head, d);
      auto const* const from_v = place_of(task.in.v, first_token + first_key, kv_head, d);
      for_block(team, keys, d, [&](int j, int c) {
        k(j, c) = from_k[j * task.in.k.row_stride + c];
        v(j, c) = from_v[j * task.in.v.row_stride + c];
      });
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
          [&](int i, int j, T sum) {
            p(i, j) = task.sees(first_token, first + i, first_key + j)
                          ? runtime::compat::exp(task.scale * sum - shift[i])
                          : T{0};
          });
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return g(i, l); }, [&](int l, int j) { return v(j, l); },
          [&](int i, int j, T sum) {
            auto const kept = task.mask(first_token, first + i, head, first_key + j) * sum;
            p(i, j) = task.scale * p(i, j) * (kept - term[i]);
          });
      multiply_blocks<T>(
          team, rows, d, keys, [&](int i, int l) { return p(i, l); }, [&](int l, int c) { return k(l, c); },
          [&](int i, int c, T sum) { sums(i, c) += sum; });
    }
    auto* const to = place_of(dq, first_token + first, head, d);
    for_block(team, rows, d, [&](int i, int c) { to[i * dq.row_stride + c] = sums(i, c); });
  }
};

/// Computes dk and dv of a block of keys, summed over the query heads that read it.
template<class T>
struct AttendKeysBackward {
  AttentionTask<T> task;
  Panel<T> d_out, dk, dv;
  T const* row_terms;

  KOKKOS_FUNCTION void operator()(AttentionTeam const& team) const {
    auto const& shape = task.shape;
    auto const d = task.head_dim();
    auto const item = static_cast<std::int64_t>(team.league_rank());
    auto const key_block = item % task.num_blocks();
    auto const kv_head = item / task.num_blocks() % shape.num_kv_heads;
    auto const first_token = item / task.num_blocks() / shape.num_kv_heads * shape.sequence;
    auto const first_key = key_block * task.tile;
    auto const keys = task.rows_of(key_block);
    Tile<T> const q(team, task.tile, d), g(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d),
        of_k(team, task.tile, d), of_v(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), ds(team, task.tile, task.tile);
    auto const* const from_k = place_of(task.in.k, first_token + first_key, kv_head, d);
    auto const* const from_v = place_of(task.in.v, first_token + first_key, kv_head, d);
    for_block(team, keys, d, [&](int j, int c) {
      k(j, c) = from_k[j * task.in.k.row_stride + c];
      v(j, c) = from_v[j * task.in.v.row_stride + c];
      of_k(j, c) = of_v(j, c) = 0;
    });
    auto const group = shape.heads_per_kv_head();
    for (auto head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (auto block = key_block; block < task.num_blocks(); ++block) {
        auto const first = block * task.tile;
        if (task.first_seen(first_token, first) >= first_key + keys) break; // nor does a later query see them
        auto const rows = task.rows_of(block);
        auto const* const from_q = place_of(task.in.q, first_token + first, head, d);
        auto const* const from_g = place_of(d_out, first_token + first, head, d);
        for_block(team, rows, d, [&](int i, int c) {
          q(i, c) = from_q[i * task.in.q.row_stride + c];
          g(i, c) = from_g[i * d_out.row_stride + c];
        });
        team.team_barrier();
        auto const first_row = (first_token + first) * shape.num_heads + head;
        multiply_blocks<T>(
            team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
            [&](int i, int j, T sum) {
              auto const shift = task.log_sum_exp[first_row + i * shape.num_heads];
              p(i, j) = task.sees(first_token, first + i, first_key + j)
                            ? runtime::compat::exp(task.scale * sum - shift)
                            : T{0};
            });
        multiply_blocks<T>(
            team, rows, keys, d, [&](int i, int l) { return g(i, l); }, [&](int l, int j) { return v(j, l); },
            [&](int i, int j, T sum) {
              auto const kept = task.mask(first_token, first + i, head, first_key + j);
              ds(i, j) = task.scale * p(i, j) * (kept * sum - row_terms[first_row + i * shape.num_heads]);
              p(i, j) *= kept;
            });
        multiply_blocks<T>(
            team, keys, d, rows, [&](int j, int l) { return ds(l, j); },
            [&](int l, int c) { return q(l, c); }, [&](int j, int c, T sum) { of_k(j, c) += sum; });
        multiply_blocks<T>(
            team, keys, d, rows, [&](int j, int l) { return p(l, j); }, [&](int l, int c) { return g(l, c); },
            [&](int j, int c, T sum) { of_v(j, c) += sum; });
      }
    auto* const to_k = place_of(dk, first_token + first_key, kv_head, d);
    auto* const to_v = place_of(dv, first_token + first_key, kv_head, d);
    for_block(team, keys, d, [&](int j, int c) {
      to_k[j * dk.row_stride + c] = of_k(j, c);
      to_v[j * dv.row_stride + c] = of_v(j, c);
    });
  }
};

/// Bytes of shared memory for blocks of `tile` rows, enough for each of the kernels.
template<class T>
std::size_t attention_scratch(std::int64_t head_dim, int tile) {
  auto const alignment = std::size_t{16} * 9; // padding for the alignment of each block
  return 6 * Tile<T>::bytes_of(tile, static_cast<int>(head_dim)) + 2 * Tile<T>::bytes_of(tile, tile) +
         Tile<T>::bytes_of(3, tile) + alignment;
}

constexpr int longest_attention_team = 256; // one thread per four elements of a product of 32 x 32
// The shared memory that every device offers a team, minus the bytes that Kokkos uses per team and per thread.
constexpr std::size_t most_attention_scratch = 48 * 1024 - 16 - 8 * longest_attention_team;

/// Largest number of rows per block, at most 32, that fits in shared memory; 0 if none fits.
template<class T>
int attention_tile(std::int64_t head_dim) {
  for (int tile = 32; tile > 0; tile /= 2)
    if (attention_scratch<T>(head_dim, tile) <= most_attention_scratch) return tile;
  return 0;
}

template<class T, class Body>
void run_attention(runtime::DefaultExec const& exec, char const* label, std::int64_t num_teams,
                   AttentionTask<T> const& task, Body const& body) {
  if (num_teams == 0) return;
  auto const bytes = Kokkos::PerTeam(static_cast<int>(attention_scratch<T>(task.shape.head_dim, task.tile)));
  auto const largest = AttentionPolicy(exec, static_cast<int>(num_teams), 1, 1)
                           .set_scratch_size(0, bytes)
                           .team_size_max(body, Kokkos::ParallelForTag());
  AttentionPolicy policy(exec, static_cast<int>(num_teams),
                         largest < longest_attention_team ? largest : longest_attention_team, 1);
  policy.set_scratch_size(0, bytes);
  Kokkos::parallel_for(label, policy, body);
}

template<class T>
void attend_on_device(runtime::DefaultExec const& exec, AttentionTask<T> const& task, Panel<T> const& out) {
  run_attention(exec, "orthant::pmm::attention_forward",
                task.shape.num_sequences * task.shape.num_heads * task.num_blocks(), task,
                AttendBlock<T>{task, out});
}

template<class T>
void attend_backward_on_device(runtime::DefaultExec const& exec, AttentionTask<T> const& task,
                               Panel<T> const& out, Panel<T> const& d_out,
                               AttentionOperands<T> const& gradients, runtime::Vector<T> const& row_terms) {
  auto const num_blocks = task.shape.num_sequences * task.num_blocks();
  run_attention(exec, "orthant::pmm::attention_backward", num_blocks * task.shape.num_heads, task,
                AttendQueriesBackward<T>{task, out, d_out, gradients.q, row_terms.data()});
  run_attention(exec, "orthant::pmm::attention_backward/keys", num_blocks * task.shape.num_kv_heads, task,
                AttendKeysBackward<T>{task, d_out, gradients.k, gradients.v, row_terms.data()});
}

} // namespace orthant::pmm::detail
