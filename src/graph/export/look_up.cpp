// SPDX-License-Identifier: Apache-2.0
#include "graph/export/look_up.hpp"

#include "graph/exchange.hpp"
#include "runtime/error.hpp"

#include <limits>

namespace orthant::graph {

namespace {

struct Question {
  std::int64_t position;
  std::int32_t asker;
  std::int32_t place; // in what the asker wants
};
struct Answer {
  std::int64_t value;
  std::int64_t place;
};

} // namespace

std::vector<std::int64_t> look_up(runtime::Communicator const& comm, PositionOwners const& owners,
                                  std::span<std::int64_t const> mine, std::span<std::int64_t const> wanted) {
  ORTHANT_REQUIRE(wanted.size() <= std::size_t{std::numeric_limits<std::int32_t>::max()}, wanted.size());
  auto const first = owners.range(comm.rank()).begin;
  std::vector<std::int64_t> result(wanted.size());
  Outbox<Question> questions(comm.size(), records_per_round(comm));
  Outbox<Answer> answers(comm.size(), records_per_round(comm));
  std::size_t next = 0;
  for (bool has_more = true; has_more;) {
    for (; next < wanted.size() && !questions.is_full(); ++next)
      questions.push(owners.owner(wanted[next]),
                     {wanted[next], comm.rank(), static_cast<std::int32_t>(next)});
    has_more = next < wanted.size();
    for (auto const& [position, asker, place] : questions.deliver(comm, has_more))
      answers.push(asker, {mine[static_cast<std::size_t>(position - first)], place});
    bool ignored = false;
    for (auto const& [value, place] : answers.deliver(comm, ignored))
      result[static_cast<std::size_t>(place)] = value;
  }
  return result;
}

} // namespace orthant::graph
