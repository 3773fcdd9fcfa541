#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a perceptron that scores links does on one rank, listed without arrays; link_decoder.hpp has the equations. Links of a list
// are taken a piece at a time.

#include "models/links/link_step.hpp"

namespace orthant::models {

/// Links of a piece, but for the last one: as many as the block has rows and columns, so that a piece's arrays are not larger than
/// the rows that links are made of, and not more than there are edges; but at least 4,096, even if there are fewer edges.
[[nodiscard]] std::int64_t links_at_once(LinkPlan const& plan, std::int64_t num_positives);

/// Lists the scores of a list of that many links, in pieces; with the gradients, if `differentiates`.
void plan_decoded_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives,
                        std::int64_t num_links, bool differentiates);
/// Lists its arrays.
void plan_decoder_arrays(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives);

} // namespace orthant::models
