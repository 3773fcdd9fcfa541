#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernel of causal attention (equations: attention.hpp). A team processes a block of queries of one sequence and head,
// and loops over the blocks of keys that the queries see. Blocks are in shared memory; a thread holds four sums of a product of
// two blocks in registers. The kernels run anywhere, on hosts with teams of one thread.

#include "pmm/attention/attention.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cmath>
#include <limits>

namespace orthant::pmm::detail {

using AttentionPolicy = Kokkos::TeamPolicy<runtime::DefaultExec>;
using AttentionTeam = typename AttentionPolicy::member_type;

/// A block of queries of one run of a sequence. Places count the keys of the sequence.
struct QueryBlock {
  std::int64_t first_token; // of the block, among this rank's tokens
  std::int64_t first;       // place of the first query
  int rows;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t last() const { return first + rows - 1; }
};

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

  /// Place in its sequence of the first key that query `i` of a block sees. It does not decrease from query to query.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t first_seen(QueryBlock const& block, int i) const {
    return positions == nullptr ? 0 : block.first + i - positions[block.first_token + i];
  }
  /// Factor of the probability of a query for the key `column` places behind the first one that it sees.
  [[nodiscard]] KOKKOS_FUNCTION T mask(std::int64_t token, std::int64_t head, std::int64_t column) const {
    if (drop_threshold == 0) return T{1};
    auto const row = static_cast<std::uint64_t>(token_ids[token] * all_heads + first_head + head);
    return stream.bits32(row, static_cast<std::uint64_t>(column)) < drop_threshold ? T{0} : keep_scale;
  }
  [[nodiscard]] KOKKOS_FUNCTION int head_dim() const { return static_cast<int>(shape.head_dim); }
  [[nodiscard]] KOKKOS_FUNCTION int at_most_a_tile(std::int64_t count) const {
    return count < tile ? static_cast<int>(count) : tile;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t blocks_of_run() const {
    return (shape.tokens().run_length() + tile - 1) / tile;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t num_query_blocks() const {
    return shape.tokens().num_runs() * blocks_of_run();
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t num_key_blocks() const {
    return (shape.keys() + tile - 1) / tile;
  }
  /// Number of keys of a block; the last block may have fewer than `tile`.
  [[nodiscard]] KOKKOS_FUNCTION int keys_of(std::int64_t block) const {
    return at_most_a_tile(shape.keys() - block * tile);
  }
  /// Block number `block` of this rank's queries of a sequence; the last one of a run may have fewer rows than `tile`.
  [[nodiscard]] KOKKOS_FUNCTION QueryBlock queries_of(std::int64_t sequence, std::int64_t block) const {
    auto const tokens = shape.tokens();
    auto const run = block / blocks_of_run();
    auto const in_run = block % blocks_of_run() * tile;
    return {sequence * tokens.length + run * tokens.run_length() + in_run, tokens.begin_of(run) + in_run,
            at_most_a_tile(tokens.run_length() - in_run)};
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

/// Copies a block of keys and its values to tiles, which team members may read after a barrier.
template<class T>
KOKKOS_INLINE_FUNCTION void load_keys_and_values(AttentionTeam const& team, AttentionTask<T> const& task,
                                                 std::int64_t sequence, std::int64_t key_block,
                                                 std::int64_t kv_head, Tile<T> const& k, Tile<T> const& v) {
  auto const d = task.head_dim();
  auto const first = sequence * task.shape.keys() + key_block * task.tile;
  auto const* const from_k = place_of(task.in.k, first, kv_head, d);
  auto const* const from_v = place_of(task.in.v, first, kv_head, d);
  for_block(team, task.keys_of(key_block), d, [&](int j, int c) {
    k(j, c) = from_k[j * task.in.k.row_stride + c];
    v(j, c) = from_v[j * task.in.v.row_stride + c];
  });
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
    auto const num_blocks = task.num_query_blocks();
    auto const head = item / num_blocks % shape.num_heads;
    auto const kv_head = head / shape.heads_per_kv_head();
    auto const sequence = item / num_blocks / shape.num_heads;
    auto const block = task.queries_of(sequence, num_blocks - 1 - item % num_blocks); // most keys first
    auto const first = block.first;
    auto const rows = block.rows;
    Tile<T> const q(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d), o(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), numbers(team, 3, task.tile);
    auto* const largest = &numbers(0, 0);
    auto* const sums = &numbers(1, 0);
    auto* const shrink = &numbers(2, 0);
    auto const* const from = place_of(task.in.q, block.first_token, head, d);
    for_block(team, rows, d, [&](int i, int c) {
      q(i, c) = from[i * task.in.q.row_stride + c];
      o(i, c) = 0;
    });
    for (auto key_block = task.first_seen(block, 0) / task.tile; key_block <= block.last() / task.tile;
         ++key_block) {
      auto const keys = task.keys_of(key_block);
      auto const first_key = key_block * task.tile;
      load_keys_and_values(team, task, sequence, key_block, kv_head, k, v);
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
          [&](int i, int j, T sum) { p(i, j) = task.scale * sum; });
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
        auto const query = first + i;
        auto const seen = task.first_seen(block, i);
        auto const is_first = seen >= first_key; // it has seen no earlier key
        // It sees the keys begin .. end - 1 of the block; none if it lies before the block.
        auto const begin = is_first ? static_cast<int>(seen - first_key) : 0;
        auto const end = query - first_key < keys ? static_cast<int>(query - first_key) + 1 : keys;
        auto top = is_first ? -std::numeric_limits<T>::infinity() : largest[i];
        for (int j = begin; j < end; ++j)
          top = p(i, j) > top ? p(i, j) : top;
        shrink[i] = is_first ? T{0} : runtime::compat::exp(largest[i] - top);
        auto sum = is_first ? T{0} : sums[i] * shrink[i];
        for (int j = 0; j < keys; ++j) {
          auto const is_seen = j >= begin && j < end;
          auto const number = is_seen ? runtime::compat::exp(p(i, j) - top) : T{0};
          sum += number;
          p(i, j) = is_seen ? number * task.mask(block.first_token + i, head, first_key + j - seen) : T{0};
        }
        largest[i] = top;
        sums[i] = sum;
      });
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, d, keys, [&](int i, int l) { return p(i, l); }, [&](int l, int c) { return v(l, c); },
          [&](int i, int c, T sum) { o(i, c) = o(i, c) * shrink[i] + sum; });
    }
    auto* const to = place_of(out, block.first_token, head, d);
    for_block(team, rows, d, [&](int i, int c) { to[i * out.row_stride + c] = o(i, c) / sums[i]; });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      task.log_sum_exp[(block.first_token + i) * shape.num_heads + head] =
          largest[i] + runtime::compat::log(sums[i]);
    });
  }
};

/// Bytes of shared memory for blocks of `tile` rows, enough for each of the kernels.
template<class T>
std::size_t attention_scratch(std::int64_t head_dim, int tile) {
  auto const alignment = std::size_t{16} * 10; // padding for the alignment of each block
  return 6 * Tile<T>::bytes_of(tile, static_cast<int>(head_dim)) + 2 * Tile<T>::bytes_of(tile, tile) +
         Tile<T>::bytes_of(3, tile) + Tile<int>::bytes_of(1, tile) + alignment;
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
                task.shape.num_sequences * task.shape.num_heads * task.num_query_blocks(), task,
                AttendBlock<T>{task, out});
}

} // namespace orthant::pmm::detail
