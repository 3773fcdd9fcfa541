#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Features E_e of edges in the scores of attention (gnn/plan/network_plan.hpp), and the gradients of their parameters, W_e and a_h of the edge,
// over the edges and heads of a rank. E itself has no gradient.
//
//   GAT      q_eh = sum_f E_ef B_fh,  B_fh = sum_c a_hc W_fhc      dB_fh = sum_e E_ef g_eh,  dW_fhc = a_hc dB_fh,  da_hc = sum_f W_fhc dB_fh
//   GATv2    q_ehc = sum_f E_ef W_fhc                              dW_fhc = sum_e E_ef g_eh a_hc leaky'(z_ehc)
//
// g: gradient of the argument of leaky in GAT, of the score in GATv2; z: the argument. The products with E are local. Functions enqueue on exec and
// do not fence.

#include "models/gnn/aggregation/row_sums.hpp"
#include "models/gnn/plan/attention_step.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/product/workspace.hpp"

namespace orthant::models {

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
