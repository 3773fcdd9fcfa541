// SPDX-License-Identifier: Apache-2.0
//
// Device buffers of operations that MPI carries out: handed over as they are, or by way of pinned host
// memory.
#include "runtime/comm/pending.hpp"
#include "runtime/device/pinned_pool.hpp"

namespace orthant::runtime::detail {

/// What MPI reduces on the host's processors must be the host's, whatever it says of itself: pairs with an
/// operation of our own, and reductions that make progress behind the caller's back (Open MPI adds them up
/// where they lie). The 16-bit wire is encoded and decoded on the host, too.
bool Pending::can_pass_device_memory() const {
  auto const reduces =
      call_.operation == Operation::all_reduce || call_.operation == Operation::reduce_scatter;
  auto const is_arg_max = call_.type == DataType::float32_index || call_.type == DataType::float64_index;
  return mpi_is_device_aware() && call_.wire == Wire::native && !is_arg_max &&
         !(reduces && mode_ == Mode::asynchronous);
}

// Device buffers that MPI cannot have: the host copy takes part, and comes back at the end.
void Pending::stage_to_host() {
  if (can_pass_device_memory()) {
    call_.stream.fence("orthant::runtime::collectives/before MPI reads device memory");
    return;
  }
  host_.on_device = false;
  auto const element = size_of(call_.type);
  auto const send_bytes = static_cast<std::size_t>(call_.send_count) * element;
  auto const receive_bytes = static_cast<std::size_t>(call_.receive_count) * element;
  if (call_.send != nullptr) {
    staged_send_ = lend_pinned(send_bytes);
    call_.stream.copy(staged_send_.data(), call_.send, send_bytes, CopyDirection::to_host);
    host_.send = staged_send_.data();
  }
  if (call_.receive != nullptr) {
    staged_receive_ = lend_pinned(receive_bytes);
    if (call_.send == nullptr) // in place
      call_.stream.copy(staged_receive_.data(), call_.receive, receive_bytes, CopyDirection::to_host);
    host_.receive = staged_receive_.data();
  }
  call_.stream.fence("orthant::runtime::collectives/before MPI reads the staged copy");
}

void Pending::stage_to_device() {
  if (host_.receive == call_.receive || call_.receive == nullptr) return;
  call_.stream.copy(call_.receive, host_.receive,
                    static_cast<std::size_t>(call_.receive_count) * size_of(call_.type),
                    CopyDirection::to_device);
  call_.stream.fence("orthant::runtime::collectives/before the staging buffer is lent again");
}

} // namespace orthant::runtime::detail
