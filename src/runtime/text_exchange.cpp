// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_exchange.hpp"

#include "runtime/collectives.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

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

void send_text(Communicator const& comm, std::string const& text, int destination, int tag) {
  auto const length = static_cast<std::int64_t>(text.size());
  send(host, comm, std::span(&length, 1), destination, tag);
  if (length == 0) return;
  auto const words = packed(text);
  send(host, comm, std::span(words), destination, tag);
}

std::string receive_text(Communicator const& comm, int source, int tag) {
  std::int64_t length = 0;
  receive(host, comm, std::span(&length, 1), source, tag);
  std::vector<std::int64_t> words(num_words(length));
  if (length > 0) receive(host, comm, std::span(words), source, tag);
  return unpacked(words, length);
}

} // namespace orthant::runtime
