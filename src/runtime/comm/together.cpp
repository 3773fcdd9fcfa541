// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/together.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

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

  // Text is sent as one int32 per character: messages are short, and collectives carry only numbers.
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

namespace orthant::runtime {
namespace {

std::vector<std::int64_t> packed(std::string const& text) {
  std::vector<std::int64_t> words((text.size() + 7) / 8, 0);
  if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
  return words;
}

std::string unpacked(std::vector<std::int64_t> const& words, std::int64_t length) {
  std::string text(static_cast<std::size_t>(length), '\0');
  if (length > 0) std::memcpy(text.data(), words.data(), text.size());
  return text;
}

std::size_t num_words(std::int64_t length) {
  return (static_cast<std::size_t>(length) + 7) / 8;
}

} // namespace

void broadcast_text(Communicator const& comm, std::string& text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(host, comm, std::span(&length, 1), root);
  if (length == 0) {
    text.clear();
    return;
  }
  auto words = comm.rank() == root ? packed(text) : std::vector<std::int64_t>(num_words(length));
  broadcast(host, comm, std::span(words), root);
  if (comm.rank() != root) text = unpacked(words, length);
}

void gather_text(Communicator const& comm, std::string text,
                 std::function<void(std::string_view)> const& take, std::int64_t window_bytes) {
  auto const num_ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> lengths(num_ranks);
  std::int64_t const length = std::ssize(text);
  all_gather(host, comm, std::span(&length, 1), lengths);
  text.resize(8 * num_words(length));
  std::span const mine(reinterpret_cast<std::int64_t const*>(text.data()), num_words(length));
  std::int64_t total = 0; // in words
  for (auto const bytes : lengths)
    total += static_cast<std::int64_t>(num_words(bytes));

  auto const window_words = window_bytes / 8;
  std::vector<std::int64_t> receive_counts(num_ranks);
  std::vector<std::int64_t> send_counts(num_ranks);
  std::vector<std::int64_t> window;
  for (std::int64_t begin = 0; begin < total; begin += window_words) {
    // Each rank's part of the window [begin, begin + window_words): words [first, last) of its text.
    std::int64_t start = 0;
    std::span<std::int64_t const> sent;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      auto const size = static_cast<std::int64_t>(num_words(lengths[rank]));
      auto const first = std::clamp(begin - start, std::int64_t{0}, size);
      auto const last = std::clamp(begin + window_words - start, std::int64_t{0}, size);
      receive_counts[rank] = last - first;
      if (rank == static_cast<std::size_t>(comm.rank()))
        sent = mine.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
      start += size;
    }
    send_counts[0] = std::ssize(sent);
    if (!comm.is_root()) std::ranges::fill(receive_counts, 0);
    window.resize(comm.is_root() ? static_cast<std::size_t>(std::min(window_words, total - begin)) : 0);
    all_to_allv(host, comm, sent, send_counts, window, receive_counts);

    start = 0;
    std::int64_t next = 0; // offset in the window
    for (std::size_t rank = 0; comm.is_root() && rank < num_ranks; ++rank) {
      auto const size = static_cast<std::int64_t>(num_words(lengths[rank]));
      auto const first = std::clamp(begin - start, std::int64_t{0}, size);
      auto const bytes = std::min(8 * receive_counts[rank], lengths[rank] - 8 * first);
      if (receive_counts[rank] > 0)
        take({reinterpret_cast<char const*>(window.data() + next), static_cast<std::size_t>(bytes)});
      next += receive_counts[rank];
      start += size;
    }
  }
}

} // namespace orthant::runtime
