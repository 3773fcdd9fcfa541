// SPDX-License-Identifier: Apache-2.0
//
// Logits of one token at a time, with the keys and values of the tokens before, beside those of a pass over the whole sequences, whose
// gradients are PyTorch's (transformer_test.cpp).
#include "models/lm/lm_cases.hpp"

namespace orthant::testing {
namespace {

class CachedLogits : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  CachedLogits()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

/// The cases of reference.json without dropout, and two with experts.
std::vector<std::pair<std::string, LmCase>> cached_cases() {
  std::vector<std::pair<std::string, LmCase>> all;
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name : {"gpt", "grouped", "multi_query", "llama", "rotary_biased", "head_norms",
                                 "scaled_rotary", "joint_norms", "olmoe", "deepseek", "uneven"})
    all.emplace_back(name, lm_case(reference.at(name)));
  auto experts = small_gpt();
  experts.settings.experts.num_experts = 8;
  experts.settings.experts.top_k = 2;
  all.emplace_back("experts", experts);
  experts.settings.experts.every = 2;
  experts.settings.experts.num_shared = 1;
  all.emplace_back("shared experts", experts);
  return all;
}

/// Largest difference between the rows of `whole` at each sequence's position and the rows of `next`.
double error_of(pmm::DistMatrix<double> const& whole, pmm::DistMatrix<double> const& next,
                std::int64_t sequence, std::vector<std::int64_t> const& positions) {
  auto const expected = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), whole.local());
  auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), next.local());
  auto error = 0.0;
  for (std::size_t s = 0; s < positions.size(); ++s)
    for (std::size_t c = 0; c < found.extent(1); ++c) {
      auto const row = static_cast<std::int64_t>(s) * sequence + positions[s];
      error = std::max(error, std::abs(found(s, c) - expected(static_cast<std::size_t>(row), c)));
    }
  return error;
}

// Sequence s has a prompt of 1 + s mod 3 tokens; what follows it in the first pass does not count.
TEST_P(CachedLogits, AreThoseOfTheWholeSequences) {
  auto num_cases = 0;
  for (auto const& [name, the_case] : cached_cases()) {
    SCOPED_TRACE(name);
    if (!fits(the_case, grid_.shape())) continue;
    ++num_cases;
    auto const sequence = the_case.sequence;
    models::Transformer<double> whole(grid_, the_case.settings, the_case.num_sequences, sequence, lm_seed);
    models::Transformer<double> first(grid_, the_case.settings, the_case.num_sequences, 3, lm_seed, sequence);
    set_formula_parameters(whole.parameters());
    set_formula_parameters(first.parameters());
    auto next = models::Transformer<double>::next_token_of(first);
    auto const own = whole.sequences();
    auto const tokens = LmBatch(the_case, own, 0).tokens;
    auto const token = [&](std::int64_t s, std::int64_t t) {
      return tokens[static_cast<std::size_t>(s * sequence + t)];
    };
    runtime::PhaseTimes phases;
    whole.set_tokens(tokens);
    auto const& expected = whole.forward({}, models::Pass::evaluation, 0, phases);

    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> positions;
    for (std::int64_t s = 0; s < own.size(); ++s) {
      positions.push_back(1 + (own.begin + s) % 3);
      for (std::int64_t t = 0; t < 3; ++t)
        ids.push_back(t < positions.back() ? token(s, t) : 0);
    }
    first.set_tokens(ids);
    static_cast<void>(first.forward({}, models::Pass::evaluation, 0, phases));

    for (auto step = 0; step + 3 < sequence; ++step) {
      std::vector<std::int32_t> newest;
      for (std::int64_t s = 0; s < own.size(); ++s)
        newest.push_back(token(s, positions[static_cast<std::size_t>(s)]));
      next.set_tokens(newest);
      next.set_starts(positions);
      auto const& found = next.forward({}, models::Pass::evaluation, 0, phases);
      EXPECT_LE(error_of(expected, found, sequence, positions), 1e-12) << "step " << step;
      for (auto& position : positions)
        ++position;
    }
  }
  if (num_cases == 0) GTEST_SKIP() << "heads or sequences cannot be cut";
}

INSTANTIATE_TEST_SUITE_P(AllGrids, CachedLogits, ::testing::ValuesIn(lm_grids()), GridName());

} // namespace
} // namespace orthant::testing
