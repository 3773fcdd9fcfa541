#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Computations of attention on the rows that a rank owns (gnn/plan/network_plan.hpp). Rows are whole, so nothing is communicated.
// Functions enqueue on exec and do not fence.
//
//   s_ih = <a_h row, Z_ih>      t_ih = <a_h column, Z_ih>      dZ_ih += ds_ih a_h row + dt_ih a_h column
//   da_h row = sum_i ds_ih Z_ih      da_h column = sum_i dt_ih Z_ih

#include "models/gnn/plan/attention_step.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/product/workspace.hpp"

#include <algorithm>

namespace orthant::models {

using runtime::DefaultExec;
using runtime::Vector;

// Sums over the rows that a rank has, for gradients of parameters of attention.

/// Sums over rows: first in blocks of `rows_of_block` rows, then over the blocks in double. The order depends only on the shape.
/// `partial` is borrowed memory, [blocks x columns].
template<class T>
struct RowSums {
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
  std::int64_t rows_of_block = 1;
  Vector<T> partial;
  char const* label = "orthant::models::sum_attention_vectors"; // of kernels
  char const* label_of_blocks = "orthant::models::sum_attention_vectors/blocks";
};

template<class Body>
void for_each_number(DefaultExec const& exec, char const* label, std::int64_t count, Body const& body) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

/// Sums column k % num_columns of the terms of block k / num_columns.
template<class T, class Terms>
struct SumBlockOfRows {
  Terms terms;
  std::int64_t num_rows, num_columns, rows_of_block;
  T* partial; // [num_blocks, num_columns]

  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    auto const begin = k / num_columns * rows_of_block;
    auto const end = begin + rows_of_block < num_rows ? begin + rows_of_block : num_rows;
    T sum = 0;
    for (auto row = begin; row < end; ++row)
      sum += terms(row, k % num_columns);
    partial[k] = sum;
  }
};

template<class T, class Terms>
void sum_rows(DefaultExec const& exec, RowSums<T> const& sums, Terms const& terms, T* result) {
  auto const num_rows = sums.num_rows;
  auto const num_columns = sums.num_columns;
  auto const rows_of_block = sums.rows_of_block;
  auto const num_blocks = (num_rows + rows_of_block - 1) / rows_of_block;
  T* const partial = sums.partial.data();
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, sums.label_of_blocks, num_blocks, [=](std::int64_t first, std::int64_t last) {
      for (auto block = first; block < last; ++block) {
        T* const sums_of_block = partial + block * num_columns;
        std::fill_n(sums_of_block, num_columns, T{0});
        for (auto row = block * rows_of_block; row < std::min(num_rows, (block + 1) * rows_of_block); ++row)
          terms.add_row(row, sums_of_block);
      }
    });
  else
    for_each_number(exec, sums.label_of_blocks, num_blocks * num_columns,
                    SumBlockOfRows<T, Terms>{terms, num_rows, num_columns, rows_of_block, partial});
  for_each_number(
      exec, sums.label, num_columns, KOKKOS_LAMBDA(std::int64_t column) {
        double sum = 0;
        for (std::int64_t block = 0; block < num_blocks; ++block)
          sum += static_cast<double>(partial[block * num_columns + column]);
        result[column] = static_cast<T>(sum);
      });
}

/// s, then t, [2 x rows x heads], from Z [rows x heads x width] and a [heads x 2 width].
template<class T>
void find_ends(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows, Vector<T> const& z,
               Vector<T> const& vectors, Vector<T> const& ends);
/// dZ_ih += ds_ih a_h row + dt_ih a_h column.
template<class T>
void add_ends_gradient(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                       Vector<T> const& vectors, Vector<T> const& ends_gradient, Vector<T> const& dz);

/// da [heads x 2 width], summed over these rows.
template<class T>
void sum_ends(DefaultExec const& exec, pmm::Heads const& heads, RowSums<T> const& sums, Vector<T> const& z,
              Vector<T> const& ends_gradient, T* da);
/// da := the sums of the columns of `terms` [rows x columns].
template<class T>
void sum_terms(DefaultExec const& exec, RowSums<T> const& sums, Vector<T> const& terms, T* da);

/// average: mean [rows x width] := the mean over the heads of all [rows x heads x width]. spread: its adjoint.
template<class T>
void average_heads(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                   Vector<T> const& all, Vector<T> const& mean);
template<class T>
void spread_heads(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                  Vector<T> const& mean, Vector<T> const& all);

// Attention by dot products (AttentionKind::transformer), on U = [V | K | Q | S] of the own rows:
//
//   shift        V_ih += b_h of V      Q_ih := (Q_ih + b_h of Q) / sqrt(d)
//   add          result += S
//   adjoints     dQ := dQ / sqrt(d)    dS := the gradient of the result    db := the sums over the rows of dV and dQ

template<class T>
void shift_projected(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                     Vector<T> const& vectors, Vector<T> const& u);
template<class T>
void add_skipped(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                 Vector<T> const& u, Vector<T> const& result);
template<class T>
void shift_projected_backward(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                              Vector<T> const& result_gradient, Vector<T> const& du);
template<class T>
void sum_shifts(DefaultExec const& exec, AttentionPlan const& plan, RowSums<T> const& sums,
                Vector<T> const& du, T* db);

// Features E_e of edges in the scores of attention (gnn/plan/network_plan.hpp), and the gradients of their parameters, W_e and a_h of the edge,
// over the edges and heads of a rank. E itself has no gradient.
//
//   GAT      q_eh = sum_f E_ef B_fh,  B_fh = sum_c a_hc W_fhc      dB_fh = sum_e E_ef g_eh,  dW_fhc = a_hc dB_fh,  da_hc = sum_f W_fhc dB_fh
//   GATv2    q_ehc = sum_f E_ef W_fhc                              dW_fhc = sum_e E_ef g_eh a_hc leaky'(z_ehc)
//
// g: gradient of the argument of leaky in GAT, of the score in GATv2; z: the argument. The products with E are local. Functions enqueue on exec and
// do not fence.

/// The term of the scores. GAT: computes B in the slot `right` of `work`, which must not be used before the scores are computed. Without features
/// of edges, the term is empty and nothing is computed.
template<class T>
[[nodiscard]] pmm::EdgeFeatureTerm<T>
edge_feature_term(DefaultExec const& exec, AttentionSteps const& steps,
                  typename NetworkLayerParameters<T>::Attention const& parameters, Vector<T> const& features,
                  pmm::Workspace<T> const& work);

/// Overwrites the gradients of W_e and a'' with this rank's part. `term`: that of the scores; `gradient` [edges x heads]: g. GATv2 reads `operands`.
/// Uses the slots left and sums. Does nothing without features.
template<class T>
void edge_parameter_gradients(DefaultExec const& exec, AttentionSteps const& steps,
                              pmm::EdgeBlock const& block,
                              typename NetworkLayerParameters<T>::Attention const& parameters,
                              pmm::EdgeFeatureTerm<T> const& term, pmm::DynamicOperands<T> const& operands,
                              Vector<T> const& gradient, pmm::Workspace<T> const& work);

} // namespace orthant::models
