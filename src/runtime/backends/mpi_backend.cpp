// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/mpi_exchange.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/encoded_exchange.hpp"
#include "runtime/device/pinned_pool.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstddef>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace orthant::runtime {

bool mpi_is_device_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  if (MPIX_Query_cuda_support() == 1) return true;
#endif
#if defined(MPIX_ROCM_AWARE_SUPPORT) && MPIX_ROCM_AWARE_SUPPORT
  if (MPIX_Query_rocm_support() == 1) return true;
#endif
  return false;
}

namespace detail {
namespace {

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}

  /// MPI cannot take device buffers, even if it is device-aware, if it reduces on the host's processors: pairs, which have an operation of
  /// our own, and reductions that progress in the background (Open MPI adds the numbers where they are).
  bool takes(Call const& call, Mode mode) const override {
    if (call.wire != Wire::native) return false;
    if (!call.on_device) return true;
    return mpi_is_device_aware() && !is_arg_max(call) && !(reduces(call) && mode == Mode::asynchronous);
  }
  bool is_ordered_by_stream() const override { return false; }

  std::unique_ptr<Exchange> begin(Communicator const& comm, Call const& call, Mode mode) override {
    if (call.on_device) call.stream.fence("orthant::runtime::collectives/before MPI reads device memory");
    if (mode == Mode::blocking) {
      MpiExchange(comm, mode).begin(call);
      return nullptr;
    }
    auto exchange = std::make_unique<MpiExchange>(comm, mode);
    exchange->begin(call);
    return exchange;
  }

  std::shared_ptr<Progress> progress() const override { return progress_; }
  MatchTags* tags() override { return &tags_; }

 private:
  std::shared_ptr<Progress> progress_;
  MatchTags tags_;
};

} // namespace

std::unique_ptr<Backend> make_mpi_backend(std::shared_ptr<Progress> progress) {
  return std::make_unique<MpiBackend>(progress ? std::move(progress) : std::make_shared<Progress>());
}

} // namespace detail
} // namespace orthant::runtime

namespace orthant::runtime::detail {
namespace {

Call on_host(Call call) {
  call.on_device = false;
  return call;
}

/// For device buffers that the host backend does not accept: operates on a host copy, and copies the result back at the end.
class StagedExchange final : public Exchange {
 public:
  explicit StagedExchange(Call const& call) : call_(call) {}
  ~StagedExchange() override {
    give_back_pinned(send_);
    give_back_pinned(receive_);
  }

  void begin(Backend& backend, Communicator const& comm, Mode mode) {
    auto host_call = on_host(call_);
    auto const send_bytes = static_cast<std::size_t>(call_.send_count) * size_of(call_.type);
    if (call_.send != nullptr) {
      send_ = lend_pinned(send_bytes);
      call_.stream.copy(send_.data(), call_.send, send_bytes, CopyDirection::to_host);
      host_call.send = send_.data();
    }
    if (call_.receive != nullptr) {
      receive_ = lend_pinned(receive_bytes());
      auto const is_in_place = call_.send == nullptr && call_.send_count > 0;
      if (is_in_place || keeps_own_part(call_, comm.rank()))
        call_.stream.copy(receive_.data(), call_.receive, receive_bytes(), CopyDirection::to_host);
      host_call.receive = receive_.data();
    }
    call_.stream.fence("orthant::runtime::collectives/before MPI reads the staged copy");
    exchange_ = begin_on(backend, comm, host_call, mode);
  }

  void finish() override {
    if (exchange_) exchange_->finish();
    if (call_.receive == nullptr) return;
    call_.stream.copy(call_.receive, receive_.data(), receive_bytes(), CopyDirection::to_device);
    call_.stream.fence("orthant::runtime::collectives/before the staging buffer is lent again");
  }

  bool test() override { return !exchange_ || exchange_->test(); }
  void abandon() noexcept override {
    if (exchange_) exchange_->abandon();
  }

 private:
  [[nodiscard]] std::size_t receive_bytes() const {
    return static_cast<std::size_t>(call_.receive_count) * size_of(call_.type);
  }

  Call call_;
  std::span<std::byte> send_, receive_; // pinned
  std::unique_ptr<Exchange> exchange_;
};

class StagedBackend final : public Backend {
 public:
  explicit StagedBackend(Backend& of_host) : of_host_(of_host) {}

  bool takes(Call const& call, Mode mode) const override {
    return call.on_device && can_carry(of_host_, on_host(call), mode);
  }
  bool is_ordered_by_stream() const override { return false; }
  std::unique_ptr<Exchange> begin(Communicator const& comm, Call const& call, Mode mode) override {
    auto exchange = std::make_unique<StagedExchange>(call);
    exchange->begin(of_host_, comm, mode);
    return exchange;
  }
  std::shared_ptr<Progress> progress() const override { return of_host_.progress(); }

 private:
  Backend& of_host_;
};

} // namespace

std::unique_ptr<Backend> make_staged_backend(Backend& of_host) {
  return std::make_unique<StagedBackend>(of_host);
}

} // namespace orthant::runtime::detail
