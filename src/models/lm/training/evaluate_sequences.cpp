// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/evaluate_sequences.hpp"

#include "runtime/comm/collectives.hpp"
#include "tokens/token_file.hpp"

namespace orthant::models {

template<class T>
SplitScore evaluate_sequences(pmm::ProcessGrid const& grid, Transformer<T>& network, pmm::RowLoss<T>& loss,
                              SequenceRows<T>& rows, tokens::TokenFile const& file,
                              std::int64_t num_sequences) {
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases; // evaluation is no part of a step
  auto const num_windows =
      tokens::num_validation_windows(file.num_tokens(tokens::Part::valid), rows.sequence());
  auto const own = rows.sequences();
  std::array sums{0.0, 0.0, 0.0}; // loss, right, predicted; of this data group
  for (std::int64_t first = 0; first < num_windows; first += num_sequences) {
    for (std::int64_t s = 0; s < own.size(); ++s)
      if (auto const window = first + own.begin + s; window < num_windows)
        rows.read(s, tokens::Part::valid, window * rows.sequence());
      else
        rows.clear(s);
    rows.bind(0);
    auto const score = loss.evaluate(exec, network.forward(exec, Pass::evaluation, 0, phases)).front();
    auto const count = static_cast<double>(score.num_counted);
    sums[0] += score.loss * count;
    sums[1] += static_cast<double>(score.num_correct);
    sums[2] += count;
  }
  runtime::all_reduce(runtime::host, grid.over(pmm::batch_axes(grid.shape())), std::span(sums));
  SplitScore score;
  score.num_counted = static_cast<std::int64_t>(sums[2]);
  score.num_correct = static_cast<std::int64_t>(sums[1]);
  score.loss = sums[2] == 0 ? 0.0 : sums[0] / sums[2];
  return score;
}

template SplitScore evaluate_sequences(pmm::ProcessGrid const&, Transformer<float>&, pmm::RowLoss<float>&,
                                       SequenceRows<float>&, tokens::TokenFile const&, std::int64_t);
template SplitScore evaluate_sequences(pmm::ProcessGrid const&, Transformer<double>&, pmm::RowLoss<double>&,
                                       SequenceRows<double>&, tokens::TokenFile const&, std::int64_t);

} // namespace orthant::models
