// SPDX-License-Identifier: Apache-2.0
#include "models/lm_training/sequence_source.hpp"

namespace orthant::models {

template<class T>
SequenceSource<T>::SequenceSource(pmm::ProcessGrid const& grid, SequenceRows<T>& rows,
                                  tokens::TokenFile const& file, SequenceSettings const& settings)
    : grid_(grid),
      rows_(rows),
      settings_(settings),
      windows_(file.num_tokens(tokens::Part::train), settings.sequence, settings.seed) {}

template<class T>
void SequenceSource<T>::start_at(std::int64_t /*epoch*/, std::int64_t step) {
  ORTHANT_REQUIRE(step == 0, "step ", step, " of epochs that have one");
  k_ = 0;
}

template<class T>
std::uint64_t SequenceSource<T>::next(std::int64_t epoch, runtime::PhaseTimes& phases) {
  runtime::ScopedTimer const timer(grid_.world().instruments(), phases, "tokens");
  auto const pass = (epoch - 1) * settings_.num_accumulated + k_;
  auto const own = rows_.sequences();
  for (std::int64_t s = 0; s < own.size(); ++s)
    rows_.read(s, tokens::Part::train, windows_.begin_of(pass * settings_.num_sequences() + own.begin + s));
  rows_.bind(k_);
  k_ = (k_ + 1) % settings_.num_accumulated;
  return static_cast<std::uint64_t>(pass);
}

template class SequenceSource<float>;
template class SequenceSource<double>;

} // namespace orthant::models
