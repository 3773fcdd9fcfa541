#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Maps original ids to the keys of batches (sampler.hpp) during set-up. Every rank reads the strata of N/P vertices, sends them to the
// owners of their original ids, and requests keys from those owners.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"
#include "sampling/key_table.hpp"
#include "sampling/sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::sampling {

/// Stratum of each vertex at positions `rows` of order p1. Not collective and may throw: call it inside together().
[[nodiscard]] std::vector<std::int32_t> read_strata(graph::GraphStore const& store, Strata const& strata,
                                                    runtime::Range rows);

/// Number of vertices of the graph in each of `num_strata` strata. Collective.
[[nodiscard]] std::vector<std::int64_t> count_strata(runtime::Communicator const& comm,
                                                     graph::GraphStore const& store, Strata const& strata,
                                                     std::size_t num_strata);

class SamplingKeys {
 public:
  /// With more than one stratum, every rank holds the keys of N/P vertices, by original id. `comm` must outlive this object. Collective.
  SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store, Strata const& strata,
               std::size_t num_strata);

  [[nodiscard]] std::size_t num_strata() const { return sizes_.size(); }
  /// Number of vertices of the graph in each stratum.
  [[nodiscard]] std::vector<std::int64_t> const& sizes() const { return sizes_; }
  /// The keys of the vertices with these original ids. With more than one stratum it is collective: every rank requests its own ids, and
  /// needs 24 bytes per id that others request from it.
  [[nodiscard]] PackedIds of(PackedIds const& original_ids) const;
  /// Bytes held by this rank, and bytes that a rank holds if there is more than one stratum.
  [[nodiscard]] std::int64_t num_bytes() const { return keys_.num_bytes(); }
  [[nodiscard]] static std::int64_t bytes(std::int64_t num_vertices, int num_ranks, int rank) {
    return PackedIds::bytes(num_vertices, runtime::balanced_range(num_vertices, num_ranks, rank).size());
  }

 private:
  runtime::Communicator const& comm_;
  std::int64_t num_vertices_;
  runtime::Range ids_; // owned by this rank
  std::vector<std::int64_t> sizes_;
  PackedIds keys_; // [ids_]; empty if there is one stratum
};

} // namespace orthant::sampling
