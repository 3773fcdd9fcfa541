// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampling_keys.hpp"

#include "graph/exchange.hpp"
#include "graph/store/distribution.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace orthant::sampling {
namespace {

using runtime::index;
using runtime::Range;

struct Member {
  std::int64_t vertex; // original id
  std::int64_t stratum;
};
struct Question {
  std::int64_t vertex;
  std::int64_t place; // in the list of the requesting rank
  std::int64_t rank;
};
struct Answer {
  std::int64_t place;
  std::int64_t key;
};

Range share_of(runtime::Communicator const& comm, std::int64_t num_vertices) {
  return runtime::balanced_range(num_vertices, comm.size(), comm.rank());
}

} // namespace

std::vector<std::int32_t> read_strata(graph::GraphStore const& store, Strata const& strata, Range rows) {
  using graph::Order;
  switch (strata.by) {
  case Strata::By::nothing:
    break;
  case Strata::By::cluster:
    return store.read_clusters(Order::p1, rows);
  case Strata::By::training: {
    auto const mask = store.read_mask(graph::Split::train, Order::p1, rows);
    std::vector<std::int32_t> result(mask.size());
    std::transform(mask.begin(), mask.end(), result.begin(), [](auto trains) { return trains != 0 ? 0 : 1; });
    return result;
  }
  case Strata::By::degree: {
    auto const& bounds = strata.degree_bounds;
    auto const degrees = store.read_degrees(Order::p1, rows);
    std::vector<std::int32_t> result(degrees.size());
    std::transform(degrees.begin(), degrees.end(), result.begin(), [&](auto degree) {
      auto const above = std::upper_bound(bounds.begin() + 1, bounds.end() - 1, degree);
      return static_cast<std::int32_t>(above - bounds.begin() - 1);
    });
    return result;
  }
  }
  return std::vector<std::int32_t>(index(rows.size()));
}

std::vector<std::int64_t> count_strata(runtime::Communicator const& comm, graph::GraphStore const& store,
                                       Strata const& strata, std::size_t num_strata) {
  auto counts = runtime::together(comm, [&] {
    std::vector<std::int64_t> mine(num_strata);
    for (auto const stratum : read_strata(store, strata, share_of(comm, store.facts().num_vertices)))
      ++mine[index(stratum)];
    return mine;
  });
  runtime::all_reduce(runtime::host, comm, std::span(counts));
  return counts;
}

SamplingKeys::SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store,
                           Strata const& strata, std::size_t num_strata)
    : comm_(comm),
      num_vertices_(store.facts().num_vertices),
      ids_(share_of(comm, num_vertices_)),
      sizes_{num_vertices_} {
  if (num_strata == 1) return;
  auto const [ids, strata_read] = runtime::together(comm, [&] {
    return std::pair(store.read_original_ids(graph::Order::p1, ids_), read_strata(store, strata, ids_));
  });
  std::vector<std::int32_t> stratum_of(index(ids_.size())); // by original id
  std::size_t next = 0;
  graph::exchange<Member>(
      comm,
      [&, &ids = ids, &strata_read = strata_read](graph::Outbox<Member>& outbox) {
        for (; next < ids.size() && !outbox.is_full(); ++next)
          outbox.push(graph::block_owner(num_vertices_, comm.size(), ids[next]),
                      {ids[next], strata_read[next]});
        return next < ids.size();
      },
      [&](std::span<Member const> arrived) {
        for (auto const& [vertex, stratum] : arrived)
          stratum_of[index(vertex - ids_.begin)] = static_cast<std::int32_t>(stratum);
      });

  std::vector<std::int64_t> counts(num_strata);
  for (auto const stratum : stratum_of)
    ++counts[index(stratum)];
  sizes_ = counts;
  runtime::all_reduce(runtime::host, comm, std::span(sizes_));
  auto first_keys = counts; // first key of this rank's vertices in each stratum
  runtime::exclusive_scan(comm, std::span(first_keys));
  std::int64_t stratum_begin = 0;
  for (std::size_t s = 0; s < num_strata; ++s)
    first_keys[s] += std::exchange(stratum_begin, stratum_begin + sizes_[s]);
  keys_ = PackedIds(num_vertices_, ids_.size());
  for (std::size_t i = 0; i < stratum_of.size(); ++i)
    keys_.set(i, first_keys[index(stratum_of[i])]++);
}

PackedIds SamplingKeys::of(PackedIds const& original_ids) const {
  if (num_strata() == 1) return original_ids;
  std::vector<Question> questions; // received by this rank
  std::size_t next = 0;
  graph::exchange<Question>(
      comm_,
      [&](graph::Outbox<Question>& outbox) {
        for (; next < original_ids.size() && !outbox.is_full(); ++next)
          outbox.push(graph::block_owner(num_vertices_, comm_.size(), original_ids[next]),
                      {original_ids[next], static_cast<std::int64_t>(next), comm_.rank()});
        return next < original_ids.size();
      },
      [&](std::span<Question const> arrived) {
        questions.insert(questions.end(), arrived.begin(), arrived.end());
      });

  PackedIds keys(num_vertices_, static_cast<std::int64_t>(original_ids.size()));
  next = 0;
  graph::exchange<Answer>(
      comm_,
      [&](graph::Outbox<Answer>& outbox) {
        for (; next < questions.size() && !outbox.is_full(); ++next) {
          auto const& [vertex, place, rank] = questions[next];
          outbox.push(static_cast<int>(rank), {place, keys_[index(vertex - ids_.begin)]});
        }
        return next < questions.size();
      },
      [&](std::span<Answer const> arrived) {
        for (auto const& [place, key] : arrived)
          keys.set(index(place), key);
      });
  return keys;
}

} // namespace orthant::sampling
