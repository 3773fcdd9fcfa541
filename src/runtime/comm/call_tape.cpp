// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/call_tape.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"

#include <cstring>
#include <utility>

namespace orthant::runtime {
namespace detail {
namespace {

constexpr std::int64_t not_recorded = -1; // num_bytes of a result that only an earlier recording had

std::int64_t bytes_of_result(Call const& call) {
  return call.receive_count * static_cast<std::int64_t>(size_of(call.type));
}

/// Messages and barriers have no result that all ranks know.
bool has_result(Call const& call) {
  return call.operation != Operation::send && call.operation != Operation::receive &&
         call.operation != Operation::barrier;
}

void copy(Call const& call, void* to, void const* from) {
  auto const num_bytes = static_cast<std::size_t>(bytes_of_result(call));
  if (num_bytes == 0) return;
  if (call.on_device)
    call.stream.copy(to, from, num_bytes, CopyDirection::within_device);
  else
    std::memcpy(to, from, num_bytes);
}

} // namespace

void KeptResult::prepare(MakeBytes const& make_bytes, Call const& call) {
  operation = call.operation;
  num_bytes = bytes_of_result(call);
  if (num_bytes <= capacity) return;
  capacity = bytes ? num_bytes + num_bytes / 32 : num_bytes;
  bytes.reset(); // frees the old memory before the new memory is allocated
  bytes = make_bytes("orthant::runtime::CallTape/result", capacity, call.on_device);
}

void KeptResult::take(PassLedger& passes, Call const& call) {
  passes.add(pass_of_kept(num_bytes));
  copy(call, bytes.get(), call.receive);
}

void KeptResult::hand_out(PassLedger& passes, Call const& call) const {
  passes.add(pass_of_replayed(num_bytes));
  copy(call, call.receive, bytes.get());
}

} // namespace detail

void CallTape::begin(State state) {
  state_ = state;
  for (auto& [comm, track] : tracks_) {
    track.next = 0;
    if (state != State::recording) continue;
    for (auto& kept : track.results) // a shorter recording must not keep later results of a longer one
      kept.num_bytes = detail::not_recorded;
  }
}

detail::KeptResult* CallTape::record(Communicator const& comm, detail::Call const& call) {
  if (state_ != State::recording || !detail::has_result(call)) return nullptr;
  auto& track = tracks_[&comm];
  if (track.next == track.results.size()) track.results.emplace_back();
  auto& kept = track.results[track.next++];
  kept.prepare(make_bytes_, call);
  return &kept;
}

bool CallTape::replay(Communicator const& comm, detail::Call const& call) {
  if (state_ != State::replaying || !detail::has_result(call)) return false;
  auto& track = tracks_[&comm];
  ORTHANT_REQUIRE(track.next < track.results.size() &&
                      track.results[track.next].num_bytes != detail::not_recorded,
                  "call ", track.next, " along ", comm.axis(), " is replayed, and was not recorded");
  auto const& kept = track.results[track.next++];
  ORTHANT_REQUIRE(kept.operation == call.operation && kept.num_bytes == detail::bytes_of_result(call),
                  "call ", track.next - 1, " along ", comm.axis(), " is replayed as ",
                  name_of(call.operation), " with ", detail::bytes_of_result(call),
                  " bytes, and was recorded as ", name_of(kept.operation), " with ", kept.num_bytes);
  kept.hand_out(comm.instruments().passes, call);
  return true;
}

std::string RecordedStep::record(Communicator const& group, std::vector<Communicator const*> communicators,
                                 std::function<void()> const& enqueue) {
  communicators_ = std::move(communicators);
  instruments_ = &group.instruments();
  // During recording, work is counted although it is not done yet. The counts are removed here and added at each replay.
  auto const flops_before = std::exchange(instruments_->flops, {});
  auto const passes_before = std::exchange(instruments_->passes.total, {});
  std::vector<Ledger> before;
  for (auto const* comm : communicators_)
    before.push_back(std::exchange(comm->ledger(), {}));
  auto failure = graph_.capture(queue_, enqueue);
  flops_ = std::exchange(instruments_->flops, flops_before);
  passes_ = std::exchange(instruments_->passes.total, passes_before);
  calls_.clear();
  for (auto const* comm : communicators_)
    calls_.push_back(comm->ledger());
  auto const all_have_it = all_reduced(group, std::int32_t{graph_.exists()}, Reduction::min) != 0;
  // The reduction above is not part of the step.
  for (std::size_t i = 0; i < communicators_.size(); ++i)
    communicators_[i]->ledger() = before[i];
  if (all_have_it) return {};
  graph_ = {};
  return failure.empty() ? "another rank could not record it" : failure;
}

void RecordedStep::replay() {
  graph_.launch(queue_);
  for (std::size_t i = 0; i < communicators_.size(); ++i)
    communicators_[i]->ledger().add_calls(calls_[i]);
  instruments_->flops += flops_;
  instruments_->passes.total += passes_;
}

} // namespace orthant::runtime
