// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/together.hpp"

#include "runtime/comm/collectives.hpp"

#include <array>

namespace orthant::runtime::detail {

void agree(Communicator const& comm, std::optional<LocalFailure> const& failure) {
  auto const none = static_cast<std::int64_t>(comm.size());
  auto const mine = failure ? static_cast<std::int64_t>(comm.rank()) : none;
  auto const lowest = all_reduced(comm, mine, Reduction::min);
  if (lowest == none) return;

  auto const root = static_cast<int>(lowest);
  std::array<std::int64_t, 2> header{};
  if (comm.rank() == root)
    header = {static_cast<std::int64_t>(failure->message.size()), failure->is_users_mistake ? 1 : 0};
  broadcast(host, comm, std::span(header), root);

  // Text travels as one int32 a character: messages are short and collectives carry numbers only.
  std::vector<std::int32_t> text(static_cast<std::size_t>(header[0]));
  if (comm.rank() == root) text.assign(failure->message.begin(), failure->message.end());
  broadcast(host, comm, std::span(text), root);
  std::string message;
  for (auto const character : text)
    message.push_back(static_cast<char>(character));
  if (header[1] == 1) throw UserError(message);
  throw Error(message);
}

} // namespace orthant::runtime::detail
