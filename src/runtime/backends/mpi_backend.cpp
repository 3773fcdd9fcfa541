// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/mpi_exchange.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/progress.hpp"
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

  /// What MPI reduces on the host's processors must be the host's, whatever it says of itself: pairs with an
  /// operation of our own, and reductions that make progress behind the caller's back (Open MPI adds them up
  /// where they lie).
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
