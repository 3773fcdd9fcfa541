// SPDX-License-Identifier: Apache-2.0
#include "models/batches/batch_queue.hpp"

namespace orthant::models {

template<class T>
BatchQueue<T>::BatchQueue(BatchMaker<T>& maker, sampling::Sampler const& sampler, std::int64_t group,
                          std::int64_t num_accumulated, std::int64_t num_epochs, Prefetch prefetch,
                          std::int64_t first_epoch, std::int64_t first_step)
    : maker_(maker),
      sampler_(sampler),
      group_(group),
      num_accumulated_(num_accumulated),
      num_epochs_(num_epochs),
      place_{first_epoch, first_step, 0} {
  if (prefetch == Prefetch::none) return;
  task_.emplace([this] { fill_back(); });
  if (!is_at_end()) task_->start();
}

template<class T>
void BatchQueue<T>::fill_back() {
  maker_.fill(place_.epoch, sampler_.batch_of(place_.step, group_, place_.accumulated), batches_[back_]);
}

template<class T>
void BatchQueue<T>::advance() {
  if (++place_.accumulated < num_accumulated_) return;
  place_.accumulated = 0;
  if (++place_.step < sampler_.num_steps()) return;
  place_.step = 0;
  ++place_.epoch;
}

template<class T>
HostBatch<T>& BatchQueue<T>::next(runtime::Instruments& instruments, runtime::PhaseTimes& phases) {
  ORTHANT_REQUIRE(!is_at_end(), "there is no batch after the last of epoch ", num_epochs_);
  {
    runtime::ScopedTimer const timer(instruments, phases, "sampling_wait");
    if (task_) {
      task_->wait();
      if (task_start_) instruments.clock.wait_for_work(*task_start_, batches_[back_].seconds);
    } else {
      fill_back();
    }
  }
  auto& batch = batches_[back_];
  phases.add("sampling", batch.seconds);
  advance();
  if (!task_) return batch; // the next one takes its place
  // The other batch is in use no more.
  back_ = 1 - back_;
  if (!is_at_end()) {
    task_start_ = instruments.clock.now();
    task_->start();
  }
  return batch;
}

template class BatchQueue<float>;
template class BatchQueue<double>;

} // namespace orthant::models
