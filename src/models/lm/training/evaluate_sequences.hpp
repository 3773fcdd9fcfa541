#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The loss over the whole validation part: windows that do not overlap, so each token but the first is predicted
// once, from those before it in its window.

#include "models/lm/training/sequence_rows.hpp"
#include "models/training/vertex_loss.hpp"

namespace orthant::models {

/// Mean loss in nats per token, and how many tokens were predicted and how many right. `num_sequences`: of a pass, over
/// all data groups. Collective over the grid's group and data axis. Throws UserError if a rank cannot read.
template<class T>
[[nodiscard]] SplitScore evaluate_sequences(pmm::ProcessGrid const& grid, Transformer<T>& network,
                                            pmm::RowLoss<T>& loss, SequenceRows<T>& rows,
                                            tokens::TokenFile const& file, std::int64_t num_sequences);

} // namespace orthant::models
