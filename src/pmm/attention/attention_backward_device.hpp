#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of the backward pass of attention. The first loops over keys in the order of the forward pass and computes dq; the
// second processes a block of keys, loops over the queries that see them, and computes dk and dv. So no element is written by
// two teams, and results have the same bits in every run. This needs seven products of blocks instead of five with atomic
// additions.

#include "pmm/attention/attention_device.hpp"

namespace orthant::pmm::detail {

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
    auto const num_blocks = task.num_query_blocks();
    auto const head = item / num_blocks % shape.num_heads;
    auto const kv_head = head / shape.heads_per_kv_head();
    auto const sequence = item / num_blocks / shape.num_heads;
    auto const block = task.queries_of(sequence, num_blocks - 1 - item % num_blocks);
    auto const first = block.first;
    auto const rows = block.rows;
    Tile<T> const q(team, task.tile, d), g(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d),
        sums(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), numbers(team, 2, task.tile);
    Tile<int> const seen(team, 1, task.tile);
    auto* const term = &numbers(0, 0);
    auto* const shift = &numbers(1, 0);
    auto const* const from_q = place_of(task.in.q, block.first_token, head, d);
    auto const* const from_g = place_of(d_out, block.first_token, head, d);
    auto const* const from_out = place_of(out, block.first_token, head, d);
    for_block(team, rows, d, [&](int i, int c) {
      q(i, c) = from_q[i * task.in.q.row_stride + c];
      g(i, c) = from_g[i * d_out.row_stride + c];
      sums(i, c) = 0;
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      auto const row = (block.first_token + i) * shape.num_heads + head;
      T sum = 0;
      for (int c = 0; c < d; ++c)
        sum += g(i, c) * from_out[i * out.row_stride + c];
      term[i] = row_terms[row] = sum;
      shift[i] = task.log_sum_exp[row];
      seen(0, i) = static_cast<int>(task.first_seen(block, i));
    });
    for (auto key_block = task.first_seen(block, 0) / task.tile; key_block <= block.last() / task.tile;
         ++key_block) {
      auto const keys = task.keys_of(key_block);
      auto const first_key = key_block * task.tile;
      load_keys_and_values(team, task, sequence, key_block, kv_head, k, v);
      team.team_barrier();
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
          [&](int i, int j, T sum) {
            auto const key = first_key + j;
            p(i, j) = key >= seen(0, i) && key <= first + i
                          ? runtime::compat::exp(task.scale * sum - shift[i])
                          : T{0};
          });
      multiply_blocks<T>(
          team, rows, keys, d, [&](int i, int l) { return g(i, l); }, [&](int l, int j) { return v(j, l); },
          [&](int i, int j, T sum) {
            auto const kept = task.mask(block.first_token + i, head, first_key + j - seen(0, i)) * sum;
            p(i, j) = task.scale * p(i, j) * (kept - term[i]);
          });
      multiply_blocks<T>(
          team, rows, d, keys, [&](int i, int l) { return p(i, l); }, [&](int l, int c) { return k(l, c); },
          [&](int i, int c, T sum) { sums(i, c) += sum; });
    }
    auto* const to = place_of(dq, block.first_token, head, d);
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
    auto const key_block = item % task.num_key_blocks();
    auto const kv_head = item / task.num_key_blocks() % shape.num_kv_heads;
    auto const sequence = item / task.num_key_blocks() / shape.num_kv_heads;
    auto const first_key = key_block * task.tile;
    auto const keys = task.keys_of(key_block);
    Tile<T> const q(team, task.tile, d), g(team, task.tile, d), k(team, task.tile, d), v(team, task.tile, d),
        of_k(team, task.tile, d), of_v(team, task.tile, d);
    Tile<T> const p(team, task.tile, task.tile), ds(team, task.tile, task.tile);
    Tile<int> const seen(team, 1, task.tile);
    load_keys_and_values(team, task, sequence, key_block, kv_head, k, v);
    for_block(team, keys, d, [&](int j, int c) { of_k(j, c) = of_v(j, c) = 0; });
    auto const group = shape.heads_per_kv_head();
    for (auto head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t number = 0; number < task.num_query_blocks(); ++number) {
        auto const block = task.queries_of(sequence, number);
        if (block.last() < first_key) continue;                   // all queries lie before the keys
        if (task.first_seen(block, 0) >= first_key + keys) break; // nor does a later query see them
        auto const first = block.first;
        auto const rows = block.rows;
        auto const* const from_q = place_of(task.in.q, block.first_token, head, d);
        auto const* const from_g = place_of(d_out, block.first_token, head, d);
        for_block(team, rows, d, [&](int i, int c) {
          q(i, c) = from_q[i * task.in.q.row_stride + c];
          g(i, c) = from_g[i * d_out.row_stride + c];
          if (c == 0) seen(0, i) = static_cast<int>(task.first_seen(block, i));
        });
        team.team_barrier();
        auto const first_row = block.first_token * shape.num_heads + head;
        multiply_blocks<T>(
            team, rows, keys, d, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
            [&](int i, int j, T sum) {
              auto const shift = task.log_sum_exp[first_row + i * shape.num_heads];
              auto const key = first_key + j;
              p(i, j) = key >= seen(0, i) && key <= first + i ? runtime::compat::exp(task.scale * sum - shift)
                                                              : T{0};
            });
        multiply_blocks<T>(
            team, rows, keys, d, [&](int i, int l) { return g(i, l); }, [&](int l, int j) { return v(j, l); },
            [&](int i, int j, T sum) {
              auto const kept = task.mask(block.first_token + i, head, first_key + j - seen(0, i));
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
    auto const first_row_of_keys = sequence * shape.keys() + first_key;
    auto* const to_k = place_of(dk, first_row_of_keys, kv_head, d);
    auto* const to_v = place_of(dv, first_row_of_keys, kv_head, d);
    for_block(team, keys, d, [&](int j, int c) {
      to_k[j * dk.row_stride + c] = of_k(j, c);
      to_v[j * dv.row_stride + c] = of_v(j, c);
    });
  }
};

template<class T>
void attend_backward_on_device(runtime::DefaultExec const& exec, AttentionTask<T> const& task,
                               Panel<T> const& out, Panel<T> const& d_out,
                               AttentionOperands<T> const& gradients, runtime::Vector<T> const& row_terms) {
  auto const num_sequences = task.shape.num_sequences;
  run_attention(exec, "orthant::pmm::attention_backward",
                num_sequences * task.num_query_blocks() * task.shape.num_heads, task,
                AttendQueriesBackward<T>{task, out, d_out, gradients.q, row_terms.data()});
  run_attention(exec, "orthant::pmm::attention_backward/keys",
                num_sequences * task.num_key_blocks() * task.shape.num_kv_heads, task,
                AttendKeysBackward<T>{task, d_out, gradients.k, gradients.v, row_terms.data()});
}

} // namespace orthant::pmm::detail
