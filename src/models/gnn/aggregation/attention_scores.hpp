#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Computations of attention on the rows that a rank owns (gnn/plan/network_plan.hpp). Rows are whole, so nothing is communicated.
// Functions enqueue on exec and do not fence.
//
//   s_ih = <a_h row, Z_ih>      t_ih = <a_h column, Z_ih>      dZ_ih += ds_ih a_h row + dt_ih a_h column
//   da_h row = sum_i ds_ih Z_ih      da_h column = sum_i dt_ih Z_ih

#include "models/gnn/aggregation/row_sums.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/edges/edge_block.hpp"

namespace orthant::models {

using runtime::DefaultExec;
using runtime::Vector;

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

} // namespace orthant::models
