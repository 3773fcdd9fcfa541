#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A backend without messages: it answers for the other ranks as if each of them held what this rank holds. It
// carries sums of float and moves bytes; other calls are for other backends.

#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstring>
#include <vector>

namespace orthant::testing {

class EchoBackend final : public runtime::detail::Backend {
 public:
  using Call = runtime::detail::Call;
  using DataType = runtime::detail::DataType;
  using Exchange = runtime::detail::Exchange;
  using Mode = runtime::detail::Mode;
  using Operation = runtime::Operation;

  /// When a call is over.
  enum class Kind {
    host,  // when it is waited for, or has been tested twice
    stream // for the host at once: "device" buffers, in the order of their stream
  };

  explicit EchoBackend(Kind kind, int& num_calls) : kind_(kind), num_calls_(num_calls) {}

  bool takes(Call const& call, Mode) const override {
    auto const moves = call.operation == Operation::all_gather || call.operation == Operation::all_to_all ||
                       call.operation == Operation::broadcast;
    return call.wire == runtime::Wire::native && call.on_device == is_ordered_by_stream() &&
           (call.type == DataType::byte
                ? moves
                : call.type == DataType::float32 && call.operation == Operation::all_reduce &&
                      call.reduction == runtime::Reduction::sum);
  }
  bool is_ordered_by_stream() const override { return kind_ == Kind::stream; }

  std::unique_ptr<Exchange> begin(runtime::Communicator const& comm, Call const& call, Mode mode) override {
    ++num_calls_;
    if (kind_ == Kind::host && mode == Mode::asynchronous) return std::make_unique<Echo>(comm, call);
    carry_out(comm, call);
    return nullptr;
  }

  std::byte* device_scratch(int slot, std::int64_t num_bytes) override {
    auto& buffer = scratch_[static_cast<std::size_t>(slot)];
    if (std::ssize(buffer) < num_bytes) buffer.resize(static_cast<std::size_t>(num_bytes));
    return buffer.data();
  }
  int* overflow_flag() override { return &overflows_; }

 private:
  static void carry_out(runtime::Communicator const& comm, Call const& call) {
    if (call.operation == Operation::all_reduce) {
      auto* const values = static_cast<float*>(call.receive);
      for (std::int64_t i = 0; i < call.receive_count; ++i)
        values[i] *= static_cast<float>(comm.size());
      return;
    }
    if (call.operation == Operation::broadcast) return;
    // Of a gather, every rank's part is this rank's; of all_to_all, what every rank has for this rank.
    auto const* from = static_cast<std::byte const*>(call.send);
    if (call.operation == Operation::all_to_all)
      for (int r = 0; r < comm.rank(); ++r)
        from += call.send_counts.empty() ? call.send_count / comm.size()
                                         : call.send_counts[static_cast<std::size_t>(r)];
    auto* into = static_cast<std::byte*>(call.receive);
    for (int r = 0; r < comm.size(); ++r) {
      auto const count = call.receive_counts.empty() ? call.receive_count / comm.size()
                                                     : call.receive_counts[static_cast<std::size_t>(r)];
      std::memcpy(into, from, static_cast<std::size_t>(count));
      into += count;
    }
  }

  class Echo final : public Exchange {
   public:
    Echo(runtime::Communicator const& comm, Call const& call) : comm_(comm), call_(call) {}
    void finish() override {
      if (!is_over_) carry_out(comm_, call_);
      is_over_ = true;
    }
    bool test() override {
      if (++num_tests_ == 2) finish();
      return is_over_;
    }

   private:
    runtime::Communicator const& comm_;
    Call call_;
    int num_tests_ = 0;
    bool is_over_ = false;
  };

  Kind kind_;
  int& num_calls_;
  std::array<std::vector<std::byte>, 3> scratch_;
  int overflows_ = 0;
};

} // namespace orthant::testing
