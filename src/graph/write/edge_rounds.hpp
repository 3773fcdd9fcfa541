#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// All edges of a source, each rank its own, in original ids.

#include "graph/graph_source.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

namespace orthant::graph {

/// Calls take(batch, stream) for every batch of this rank's edges. `take` must not communicate; what it or
/// the stream throws is made everybody's. Collective.
template<class Take>
void for_each_edge_batch(runtime::Communicator const& comm, GraphSource const& source,
                         std::int64_t batch_size, Take&& take) {
  if (!source.needs_resolving()) {
    runtime::together(comm, [&] {
      auto const stream = source.edges(batch_size);
      for (EdgeBatch batch; stream->next(batch);)
        take(batch, *stream);
    });
    return;
  }
  auto const stream = runtime::together(comm, [&] { return source.edges(batch_size); });
  EdgeBatch batch;
  for (bool has_more = true; has_more;) {
    auto const mine = runtime::together(comm, [&] { return stream->next(batch); });
    source.resolve(batch);
    runtime::together(comm, [&] { take(batch, *stream); });
    has_more = runtime::all_reduced(comm, std::int64_t{mine ? 1 : 0}, runtime::Reduction::max) != 0;
  }
}

} // namespace orthant::graph
