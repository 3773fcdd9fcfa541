#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Base of exchanges with several phases of messages.

#include "runtime/backends/mpi_exchange.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mpi.h>
#include <utility>
#include <vector>

namespace orthant::runtime::detail {

/// An exchange in several phases that ranks may reach at different times, so that waits for other exchanges advance it, too.
class PhasedExchange : public Exchange {
 public:
  PhasedExchange(Communicator const& comm, MPI_Comm messages, int tag, Call const& call)
      : comm_(comm),
        call_(call),
        messages_(messages),
        tag_(tag),
        element_bytes_(static_cast<std::int64_t>(size_of(call.type))),
        piece_bytes_(std::min(comm.chunk_limit(), most_bytes(comm) / element_bytes_) * element_bytes_) {}
  ~PhasedExchange() override {
    abandon();
    for (auto& buffer : buffers_)
      comm_.give_back(std::move(buffer));
  }

  /// Begins. In blocking mode, also ends.
  void start(std::shared_ptr<Progress> const& progress, Mode mode) {
    begin();
    if (mode == Mode::asynchronous) {
      progress_ = progress;
      progress_->add(*this);
      return;
    }
    if (progress->is_needed())
      while (!test())
        progress->advance();
    finish();
  }
  void finish() override { advance(true); }
  [[nodiscard]] bool test() override { return advance(false); }
  void abandon() noexcept override {
    if (progress_) progress_->remove(*this);
    progress_.reset();
  }

 protected:
  virtual void begin() = 0;
  /// Goes on as far as possible; with `waits`, to the end. Returns true at the end.
  virtual bool advance(bool waits) = 0;

  /// True if all messages that send() and receive() have begun are over.
  [[nodiscard]] bool are_over(bool waits) {
    int is_over = 1;
    auto const count = static_cast<int>(requests_.size());
    if (waits)
      ORTHANT_MPI(MPI_Waitall(count, requests_.data(), MPI_STATUSES_IGNORE));
    else
      ORTHANT_MPI(MPI_Testall(count, requests_.data(), &is_over, MPI_STATUSES_IGNORE));
    if (is_over == 0) return false;
    requests_.clear();
    return true;
  }
  void send(std::byte const* data, std::int64_t num_bytes, int to) {
    for_each_chunk(num_bytes, piece_bytes_, [&](std::int64_t offset, int length) {
      auto& request = requests_.emplace_back(MPI_REQUEST_NULL);
      ORTHANT_MPI(MPI_Isend(data + offset, length, MPI_BYTE, to, tag_, messages_, &request));
    });
  }
  void receive(std::byte* data, std::int64_t num_bytes, int from) {
    for_each_chunk(num_bytes, piece_bytes_, [&](std::int64_t offset, int length) {
      auto& request = requests_.emplace_back(MPI_REQUEST_NULL);
      ORTHANT_MPI(MPI_Irecv(data + offset, length, MPI_BYTE, from, tag_, messages_, &request));
    });
  }
  /// Scratch memory `slot`, of at least this size. Its content does not survive a call for a larger size.
  std::byte* scratch(std::size_t slot, std::int64_t num_bytes) {
    auto& buffer = buffers_[slot];
    if (static_cast<std::int64_t>(buffer.size()) < num_bytes) {
      comm_.give_back(std::move(buffer));
      buffer = comm_.lend_scratch(static_cast<std::size_t>(num_bytes));
    }
    return buffer.data();
  }
  Communicator const& comm_;
  Call call_;
  MPI_Comm messages_;
  int tag_;
  std::int64_t element_bytes_;
  std::int64_t piece_bytes_; // messages are cut into pieces of whole elements, on both sides
  std::vector<MPI_Request> requests_;

 private:
  /// Within a node, pieces that stay in the processor's cache until they are added.
  static std::int64_t most_bytes(Communicator const& comm) {
    return comm.shares_memory() ? std::int64_t{256} << 10 : std::int64_t{4} << 20;
  }

  std::array<std::vector<std::byte>, 3> buffers_;
  std::shared_ptr<Progress> progress_; // contains this exchange
};

} // namespace orthant::runtime::detail
