// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/encoded_exchange.hpp"

#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

namespace orthant::runtime::detail {
namespace {

/// The same call on encoded numbers, without buffers and counts.
Call as_bytes(Call call, Operation operation) {
  call.operation = operation;
  call.type = DataType::byte;
  call.wire = Wire::native;
  return call;
}

class EncodedExchange final : public Exchange {
 public:
  EncodedExchange(Backend& backend, Communicator const& comm, Call const& call, Mode mode)
      : backend_(backend),
        comm_(comm),
        call_(call),
        mode_(mode),
        encoding_(encoding_of(call.wire)) {}
  ~EncodedExchange() override {
    abandon();
    if (tag_ > 0) backend_.tags()->give_back(tag_);
    for (auto& buffer : buffers_)
      comm_.give_back(std::move(buffer));
  }

  void begin();
  void finish() override;
  bool test() override;
  void abandon() noexcept override {
    if (under_way_) under_way_->abandon();
    if (progress_) progress_->remove(*this);
    progress_.reset();
  }
  [[nodiscard]] bool is_over() const { return phase_ == Phase::over; }

 private:
  enum class Phase { moving, exchanging_addends, gathering_sums, over };
  enum Slot { sent, received, gathered };
  using Counts = std::vector<std::int64_t>;

  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(comm_.rank()); }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(comm_.size()); }
  [[nodiscard]] float const* source() const {
    return static_cast<float const*>(call_.send == nullptr ? call_.receive : call_.send);
  }
  [[nodiscard]] float* result() const { return static_cast<float*>(call_.receive); }

  void divide();
  [[nodiscard]] Counts bytes_of(Counts const& parts) const;
  std::byte* lend(Slot slot, std::int64_t num_bytes);
  void encode(Counts const& parts, std::byte* into);
  void encode_on_host(std::span<float const> values, float* residuals, std::span<std::byte> into) const;
  void decode(Counts const& parts, std::byte const* from);
  template<class Work>
  void for_each_run(Counts const& parts, Work&& work) const;

  void move();
  void exchange_addends();
  void add_up();
  void gather_sums();
  void go_on();

  Backend& backend_;
  Communicator const& comm_;
  Call call_;
  Mode mode_;
  Encoding const& encoding_;
  Phase phase_ = Phase::moving;
  Counts send_parts_, receive_parts_; // in numbers
  Counts send_bytes_, receive_bytes_; // in encoded bytes; borrowed by the backend
  std::array<std::byte*, 3> slots_{};
  std::array<std::vector<std::byte>, 3> buffers_; // the slots of host memory
  std::unique_ptr<Exchange> under_way_;           // null: nothing to wait for
  int tag_ = 0;                                   // of the gather, if ranks may reach it in different orders
  std::shared_ptr<Progress> progress_;            // contains this exchange
  std::exception_ptr failure_;                    // error found by test(), which the wait throws
};

/// Divides the buffers among the ranks.
void EncodedExchange::divide() {
  auto const num_send = call_.send_count; // 0 on a rank that has nothing to gather, whose buffer may be null
  auto const num_ranks = static_cast<std::int64_t>(size());
  auto const parts_or = [&](std::span<std::int64_t const> counts, std::int64_t equal) {
    return counts.empty() ? Counts(size(), equal) : Counts(counts.begin(), counts.end());
  };
  switch (call_.operation) {
  case Operation::all_reduce:
    for (int r = 0; r < comm_.size(); ++r) { // in whole blocks, except at the end
      auto const length = encoding_.block_length();
      auto const blocks = balanced_range((num_send + length - 1) / length, comm_.size(), r);
      send_parts_.push_back(std::min(blocks.end * length, num_send) -
                            std::min(blocks.begin * length, num_send));
    }
    receive_parts_ = Counts(size(), send_parts_[rank()]);
    break;
  case Operation::reduce_scatter:
    send_parts_ = parts_or(call_.send_counts, call_.receive_count);
    receive_parts_ = Counts(size(), send_parts_[rank()]);
    break;
  case Operation::all_gather:
    send_parts_ = {num_send};
    receive_parts_ = parts_or(call_.receive_counts, call_.send_count);
    break;
  case Operation::all_to_all:
    send_parts_ = parts_or(call_.send_counts, call_.send_count / num_ranks);
    receive_parts_ = parts_or(call_.receive_counts, call_.receive_count / num_ranks);
    break;
  default: // a broadcast
    send_parts_ = receive_parts_ = {num_send};
  }
  send_bytes_ = bytes_of(send_parts_);
  receive_bytes_ = bytes_of(receive_parts_);
}

EncodedExchange::Counts EncodedExchange::bytes_of(Counts const& parts) const {
  Counts bytes;
  for (auto const count : parts)
    bytes.push_back(encoding_.encoded_bytes(count));
  return bytes;
}

std::byte* EncodedExchange::lend(Slot slot, std::int64_t num_bytes) {
  if (call_.on_device) return slots_[slot] = backend_.device_scratch(slot, num_bytes);
  buffers_[slot] = comm_.lend_scratch(static_cast<std::size_t>(num_bytes));
  return slots_[slot] = buffers_[slot].data();
}

/// Calls work(numbers) for runs of parts that can be encoded as one array, because every part but the last is a multiple of a block. On a
/// device this is usually one kernel.
template<class Work>
void EncodedExchange::for_each_run(Counts const& parts, Work&& work) const {
  std::int64_t run = 0;
  for (auto const count : parts) {
    if (run % encoding_.block_length() != 0) work(std::exchange(run, 0));
    run += count;
  }
  work(run);
}

void EncodedExchange::encode(Counts const& parts, std::byte* into) {
  auto const* from = source();
  auto* residuals = call_.residuals;
  for_each_run(parts, [&](std::int64_t count) {
    auto const num_bytes = encoding_.encoded_bytes(count);
    if (call_.on_device)
      call_.stream.encode(call_.wire, from, into, count, backend_.overflow_flag(), residuals);
    else
      encode_on_host({from, index(count)}, residuals, {into, index(num_bytes)});
    from += count;
    into += num_bytes;
    if (residuals != nullptr) residuals += count;
  });
}

void EncodedExchange::encode_on_host(std::span<float const> values, float* residuals,
                                     std::span<std::byte> into) const {
  if (residuals == nullptr)
    encoding_.encode(values, into);
  else
    encoding_.encode_with_feedback(values, {residuals, values.size()}, into);
  if (values.empty()) return;
  // The loss is measured on one window, which moves on with every call: a sample that costs little, however long the message is.
  std::array<float, Encoding::max_block> decoded;
  auto const num_windows = (std::ssize(values) + Encoding::max_block - 1) / Encoding::max_block;
  auto const begin = comm_.ledger()[call_.operation].calls % num_windows * Encoding::max_block;
  auto const count = std::min(Encoding::max_block, std::ssize(values) - begin);
  auto const first_byte = encoding_.encoded_bytes(begin);
  encoding_.decode(into.subspan(index(first_byte), index(encoding_.encoded_bytes(count))),
                   std::span(decoded).first(index(count)));
  WireLoss loss;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const after = static_cast<double>(decoded[index(i)]);
    auto const lost = residuals == nullptr ? static_cast<double>(values[index(begin + i)]) - after
                                           : static_cast<double>(residuals[begin + i]);
    loss += {lost * lost, (after + lost) * (after + lost)};
  }
  comm_.ledger().add_loss(loss);
}

void EncodedExchange::decode(Counts const& parts, std::byte const* from) {
  auto* into = result();
  for_each_run(parts, [&](std::int64_t count) {
    auto const num_bytes = encoding_.encoded_bytes(count);
    if (call_.on_device)
      call_.stream.decode(call_.wire, from, into, count);
    else
      encoding_.decode({from, static_cast<std::size_t>(num_bytes)}, {into, static_cast<std::size_t>(count)});
    from += num_bytes;
    into += count;
  });
}

void EncodedExchange::move() {
  auto moved = as_bytes(call_, call_.operation);
  moved.receive_count = sum_of(receive_bytes_);
  moved.receive = lend(received, moved.receive_count);
  moved.send_count = sum_of(send_bytes_);
  if (call_.operation == Operation::broadcast) {
    if (comm_.rank() == call_.peer) encode(send_parts_, slots_[received]);
  } else {
    encode(send_parts_, lend(sent, moved.send_count));
    moved.send = slots_[sent];
  }
  if (!call_.send_counts.empty()) moved.send_counts = send_bytes_;
  if (!call_.receive_counts.empty()) moved.receive_counts = receive_bytes_;
  under_way_ = backend_.begin(comm_, moved, mode_);
  phase_ = Phase::moving;
}

void EncodedExchange::exchange_addends() {
  auto moved = as_bytes(call_, Operation::all_to_all);
  moved.send_counts = send_bytes_;
  moved.send_count = sum_of(send_bytes_);
  moved.receive_counts = receive_bytes_;
  moved.receive_count = sum_of(receive_bytes_);
  encode(send_parts_, lend(sent, moved.send_count));
  moved.send = slots_[sent];
  moved.receive = lend(received, moved.receive_count);
  under_way_ = backend_.begin(comm_, moved, mode_);
  phase_ = Phase::exchanging_addends;
}

/// Sums the addends; the result replaces the send data.
void EncodedExchange::add_up() {
  auto const count = send_parts_[rank()];
  auto const num_bytes = static_cast<std::size_t>(send_bytes_[rank()]);
  // This rank sends its part of the sums, so it also keeps what the sums lose.
  auto* const residuals =
      call_.residuals == nullptr ? nullptr : call_.residuals + begins_of(send_parts_)[rank()];
  if (call_.on_device)
    call_.stream.sum_in_order(call_.wire, slots_[received], comm_.size(), slots_[sent], count,
                              backend_.overflow_flag(), residuals);
  else
    encoding_.sum_in_order({slots_[received], num_bytes * size()}, comm_.size(), {slots_[sent], num_bytes},
                           count, {residuals, residuals == nullptr ? 0 : index(count)});
}

void EncodedExchange::gather_sums() {
  auto moved = as_bytes(call_, Operation::all_gather);
  moved.send = slots_[sent];
  moved.send_count = send_bytes_[rank()];
  moved.receive_counts = send_bytes_;
  moved.receive_count = sum_of(send_bytes_);
  moved.receive = lend(gathered, moved.receive_count);
  moved.tag = tag_;
  under_way_ = backend_.begin(comm_, moved, mode_);
  phase_ = Phase::gathering_sums;
}

/// Starts the next phase after the exchange in progress has ended.
void EncodedExchange::go_on() {
  under_way_.reset();
  switch (phase_) {
  case Phase::moving:
    decode(receive_parts_, slots_[received]);
    phase_ = Phase::over;
    return;
  case Phase::exchanging_addends:
    add_up();
    if (call_.operation == Operation::all_reduce) return gather_sums();
    decode({send_parts_[rank()]}, slots_[sent]);
    phase_ = Phase::over;
    return;
  case Phase::gathering_sums:
    decode(send_parts_, slots_[gathered]);
    phase_ = Phase::over;
    return;
  case Phase::over:
    return;
  }
}

void EncodedExchange::begin() {
  divide();
  if (!reduces(call_)) {
    move();
  } else {
    if (mode_ == Mode::asynchronous && call_.operation == Operation::all_reduce && backend_.tags() != nullptr)
      tag_ = backend_.tags()->lend();
    exchange_addends();
  }
  while (!under_way_ && phase_ != Phase::over)
    go_on();
  if (phase_ != Phase::exchanging_addends) return;
  progress_ = backend_.progress();
  if (progress_) progress_->add(*this);
}

void EncodedExchange::finish() {
  while (phase_ != Phase::over) {
    if (under_way_) under_way_->finish();
    go_on();
  }
  if (failure_) std::rethrow_exception(failure_);
}

/// If a number does not fit, the wait for this exchange must throw, and not a wait for another exchange that advances this one.
bool EncodedExchange::test() {
  try {
    while (phase_ != Phase::over && (!under_way_ || under_way_->test()))
      go_on();
  } catch (...) {
    failure_ = std::current_exception();
    phase_ = Phase::over;
  }
  return phase_ == Phase::over;
}

} // namespace

bool can_carry(Backend const& backend, Call const& call, Mode mode) {
  if (backend.takes(call, mode)) return true;
  // Kernels encode device buffers, and only a stream orders them with the exchange.
  if (call.wire == Wire::native || (call.on_device && !backend.is_ordered_by_stream())) return false;
  if (!reduces(call)) return backend.takes(as_bytes(call, call.operation), mode);
  return backend.takes(as_bytes(call, Operation::all_to_all), mode) &&
         backend.takes(as_bytes(call, Operation::all_gather), mode);
}

std::unique_ptr<Exchange> begin_on(Backend& backend, Communicator const& comm, Call const& call, Mode mode) {
  if (backend.takes(call, mode)) return backend.begin(comm, call, mode);
  auto exchange = std::make_unique<EncodedExchange>(backend, comm, call, mode);
  exchange->begin();
  if (exchange->is_over()) return nullptr;
  return exchange;
}

} // namespace orthant::runtime::detail
