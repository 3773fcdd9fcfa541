// SPDX-License-Identifier: Apache-2.0
//
// Losses and gradients of transformers on every grid, beside one rank and beside PyTorch.
#include "models/lm/lm_cases.hpp"

namespace orthant::testing {
namespace {

class TransformerOnGrid : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  TransformerOnGrid()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}),
        one_(self_, {1, 1, 1, 1}) {}

  runtime::Communicator world_, self_;
  pmm::ProcessGrid grid_, one_;
};

/// Grids of many ranks have all cases if the specification of the test model names them, and else a few.
std::vector<std::string> cases_on(pmm::GridShape const& shape) {
  std::vector<std::string> some{"gpt", "llama_dropout", "multi_query", "uneven"};
  auto const is_named = shape == pmm::GridShape{1, 2, 2, 2} || shape == pmm::GridShape{1, 2, 4, 1} ||
                        shape == pmm::GridShape{1, 4, 1, 2} || shape == pmm::GridShape{2, 2, 2, 2} ||
                        shape == pmm::GridShape{1, 4, 2, 2};
  if (shape.num_ranks() <= 4 || is_named)
    some.insert(some.end(), {"grouped", "llama", "rotary_biased", "rms_untied", "dropout", "tanh",
                             "head_norms", "scaled_rotary", "joint_norms", "olmoe", "deepseek"});
  return some;
}

/// Element by element, relative to the largest of the parameter's gradient.
void expect_equal(LmGradients const& found, LmGradients const& expected) {
  EXPECT_NEAR(found.loss, expected.loss, 1e-12 * expected.loss);
  for (std::size_t p = 0; p < found.names.size(); ++p) {
    auto largest = 0.0, error = 0.0;
    for (std::size_t k = 0; k < expected.gradients[p].numbers.size(); ++k) {
      auto const number = expected.gradients[p].numbers[k];
      largest = std::max(largest, std::abs(number));
      error = std::max(error, std::abs(found.gradients[p].numbers[k] - number));
    }
    EXPECT_GT(largest, 0) << found.names[p];
    EXPECT_LE(error, 1e-10 * largest) << found.names[p];
  }
}

void expect_reference(LmGradients const& found, nlohmann::json const& figures) {
  auto const loss = figures.at("loss").get<double>();
  EXPECT_NEAR(found.loss, loss, 1e-12 * loss);
  ASSERT_EQ(found.names.size(), figures.at("gradients").size());
  for (std::size_t p = 0; p < found.names.size(); ++p)
    expect_told(found.gradients[p], figures.at("gradients").at(found.names[p]), 1e-10, found.names[p]);
}

TEST_P(TransformerOnGrid, HasTheLossAndTheGradientsOfPyTorchAndOfOneRank) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  auto num_cases = 0;
  for (auto const& name : cases_on(grid_.shape())) {
    SCOPED_TRACE(name);
    auto const& figures = reference.at(name);
    auto const the_case = lm_case(figures);
    if (!fits(the_case, grid_.shape())) continue;

    auto const found = lm_gradients(grid_, the_case);

    expect_reference(found, figures);
    expect_equal(found, lm_gradients(one_, the_case));
    ++num_cases;
  }
  if (num_cases == 0) GTEST_SKIP() << "heads or sequences cannot be cut";
}

/// Sets the format of products for its lifetime.
class MathScope {
 public:
  explicit MathScope(pmm::GemmMath math) { pmm::set_gemm_math(math); }
  MathScope(MathScope const&) = delete;
  MathScope& operator=(MathScope const&) = delete;
  ~MathScope() { pmm::set_gemm_math(pmm::GemmMath::fp32); }
};

/// Norm of the difference of all gradients, relative to that of `exact`.
double relative_difference(LmGradients const& found, LmGradients const& exact) {
  auto difference = 0.0, norm = 0.0;
  for (std::size_t p = 0; p < exact.gradients.size(); ++p)
    for (std::size_t k = 0; k < exact.gradients[p].numbers.size(); ++k) {
      auto const number = exact.gradients[p].numbers[k];
      difference += std::pow(found.gradients[p].numbers[k] - number, 2);
      norm += number * number;
    }
  return std::sqrt(difference / norm);
}

TEST_P(TransformerOnGrid, GradientsInBf16AreNearThoseInFp64) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device's format is chosen once";
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const& name : cases_on(grid_.shape())) {
    SCOPED_TRACE(name);
    auto the_case = lm_case(reference.at(name));
    if (!fits(the_case, grid_.shape()) || the_case.settings.experts.is_on()) continue; // others are chosen
    auto const exact = lm_gradients(grid_, the_case);
    // Norms of queries and keys divide by small numbers that were rounded.
    auto const has_head_norms = the_case.settings.query_key_norm != models::QueryKeyNorm::none;
    auto const bound = has_head_norms ? 0x1p-4 : 0x1p-6;
    constexpr auto least = 0x1p-13; // if something was rounded

    the_case.settings.wire = runtime::Wire::bf16;
    auto const of_messages = relative_difference(lm_gradients<float>(grid_, the_case), exact);

    EXPECT_LE(of_messages, bound);
    if (grid_.size({pmm::Axis::x, pmm::Axis::y, pmm::Axis::z}) > 1)
      EXPECT_GE(of_messages, least);
    else
      EXPECT_LE(of_messages, least);
    MathScope const bf16(pmm::GemmMath::bf16);
    auto const found = lm_gradients<float>(grid_, the_case);
    EXPECT_NEAR(found.loss, exact.loss, 0x1p-8 * exact.loss);
    EXPECT_LE(relative_difference(found, exact), bound);
    EXPECT_GE(relative_difference(found, exact), least);
    the_case.settings.wire = runtime::Wire::native;
    EXPECT_GE(relative_difference(lm_gradients<float>(grid_, the_case), exact), least);
  }
}

/// The sums over all documents of their losses and gradients, each as a sequence of its own on one rank.
LmGradients gradients_of_documents(pmm::ProcessGrid const& one, LmCase const& the_case) {
  LmBatch const batch(the_case, {0, the_case.num_sequences}, 0);
  auto settings = the_case.settings;
  settings.masks_documents = false;
  LmGradients sum;
  for (std::size_t begin = 0; begin < batch.tokens.size();) {
    auto end = begin + 1;
    while (end < batch.tokens.size() && batch.positions[end] != 0)
      ++end;
    auto const length = end - begin;
    models::Transformer<double> network(one, settings, 1, static_cast<std::int64_t>(length), lm_seed);
    set_formula_parameters(network.parameters());
    network.set_tokens(std::span(batch.tokens).subspan(begin, length));
    pmm::RowLoss<double> loss(one, network.logits_placement(), pmm::LossKind::softmax);
    auto const first = batch.targets.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector const targets(first, first + static_cast<std::ptrdiff_t>(length));
    loss.set_targets({device_copy(std::vector<std::int8_t>(length)), device_copy(targets), {}});
    runtime::PhaseTimes phases;
    auto const& logits = network.forward({}, models::Pass::training, lm_step, phases);
    sum.loss += loss.loss_and_gradient({}, logits, network.logits_gradient(), batch.num_kept());
    network.backward({}, phases);
    Kokkos::fence();
    for (std::size_t p = 0; p < network.parameters().size(); ++p) {
      auto const& parameter = network.parameters()[p];
      auto const gradient = whole_of(parameter, parameter.gradient(), false);
      if (sum.names.size() == p) {
        sum.names.push_back(parameter.name);
        sum.gradients.emplace_back(gradient.rows, gradient.columns);
      }
      for (std::size_t k = 0; k < gradient.numbers.size(); ++k)
        sum.gradients[p].numbers[k] += gradient.numbers[k];
    }
    begin = end;
  }
  return sum;
}

TEST_P(TransformerOnGrid, MaskedDocumentsAreThoseOfSequencesOfTheirOwn) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name :
       {"gpt", "llama_dropout", "multi_query", "head_norms", "joint_norms", "uneven"}) {
    SCOPED_TRACE(name);
    auto the_case = lm_case(reference.at(name));
    the_case.settings.masks_documents = true;
    the_case.sequence = the_case.settings.max_sequence = 11;
    if (!fits(the_case, grid_.shape())) continue;
    if (the_case.settings.dropout > 0)
      expect_equal(lm_gradients(grid_, the_case), lm_gradients(one_, the_case));
    the_case.settings.dropout = 0;

    auto const found = lm_gradients(grid_, the_case);

    expect_equal(found, gradients_of_documents(one_, the_case));
    the_case.settings.checkpoint_every = 1;
    expect_equal(lm_gradients(grid_, the_case), found);
    the_case.settings.masks_documents = false;
    EXPECT_GT(std::abs(lm_gradients(grid_, the_case).loss - found.loss), 1e-6);
  }
}

// dA = s dW B^T, and dB = s A^T dW in the columns of its target.
TEST_P(TransformerOnGrid, GradientsOfAdaptersAreProjectionsOfThoseOfTheWeights) {
  auto the_case = lm_case(lm_reference(ORTHANT_LM_REFERENCE_FOLDER).at("llama_dropout"));
  the_case.settings.adapters = {2, 3.0, {"q", "v", "gate", "down"}};
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "heads or sequences cannot be cut";
  models::Transformer<double> start(grid_, the_case.settings, the_case.num_sequences, the_case.sequence,
                                    lm_seed);
  set_formula_parameters(start.parameters());
  clear_other_targets(the_case.settings, start.parameters());

  auto const found = lm_gradients(grid_, the_case);

  constexpr auto scale = 1.5;
  auto num_adapters = 0;
  for (std::size_t p = 0; p < found.names.size(); ++p) {
    if (!found.names[p].ends_with(".lora_A")) continue;
    auto const stem = found.names[p].substr(0, found.names[p].rfind('.'));
    auto const weight = std::ranges::find(found.names, stem + ".weight") - found.names.begin();
    auto const& dw = found.gradients[static_cast<std::size_t>(weight)];
    auto const a = whole_of(start.parameters()[p], start.parameters()[p].value(), false);
    auto const b = whole_of(start.parameters()[p + 1], start.parameters()[p + 1].value(), false);
    Dense da(a.rows, a.columns), db(b.rows, b.columns);
    for (std::int64_t i = 0; i < dw.rows; ++i)
      for (std::int64_t j = 0; j < dw.columns; ++j)
        for (std::int64_t k = 0; k < a.columns; ++k) {
          da(i, k) += scale * dw(i, j) * b(k, j);
          if (b(k, j) != 0) db(k, j) += scale * a(i, k) * dw(i, j);
        }
    ASSERT_GT(norm_of(da), 0);
    ASSERT_GT(norm_of(db), 0);
    for (std::size_t n = 0; n < da.numbers.size(); ++n)
      EXPECT_NEAR(found.gradients[p].numbers[n], da.numbers[n], 1e-14 * norm_of(da)) << stem;
    for (std::size_t n = 0; n < db.numbers.size(); ++n)
      EXPECT_NEAR(found.gradients[p + 1].numbers[n], db.numbers[n], 1e-14 * norm_of(db)) << stem;
    ++num_adapters;
  }
  EXPECT_EQ(num_adapters, 6);
}

// The sum of a softmax's gradient over a row's keys is 0, so a number that is added to all keys has no gradient.
TEST_P(TransformerOnGrid, BiasesOfKeysHaveNoGradient) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "heads are not divisible";
  auto const found = lm_gradients(grid_, the_case);

  auto const bias = std::find(found.names.begin(), found.names.end(), "h.1.attn.c_attn.bias");
  ASSERT_NE(bias, found.names.end());
  auto const& gradient = found.gradients[static_cast<std::size_t>(bias - found.names.begin())];
  for (std::int64_t head = 0; head < 4; ++head)
    for (std::int64_t c = 0; c < 4; ++c) {
      EXPECT_LE(std::abs(gradient(0, 12 * head + 4 + c)), 1e-15) << "key of head " << head;
      EXPECT_GT(std::abs(gradient(0, 12 * head + 8 + c)), 1e-9) << "value of head " << head;
    }
}

TEST_P(TransformerOnGrid, InitialWeightsAreThoseOfOneRankToTheBit) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "heads are not divisible";
  auto const weights = [&](pmm::ProcessGrid const& grid) {
    models::Transformer<double> network(grid, the_case.settings, the_case.num_sequences, the_case.sequence,
                                        7);
    std::vector<Dense> all;
    for (auto const& parameter : network.parameters())
      all.push_back(whole_of(parameter, parameter.value(), false));
    return all;
  };
  auto const found = weights(grid_);
  auto const expected = weights(one_);
  for (std::size_t p = 0; p < expected.size(); ++p)
    EXPECT_EQ(found[p].numbers, expected[p].numbers) << p;
}

TEST_P(TransformerOnGrid, NamesTheFirstBlockThatIsNotFinite) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "heads are not divisible";
  models::Transformer<double> network(grid_, the_case.settings, the_case.num_sequences, the_case.sequence, 7);
  for (auto const& parameter : network.parameters())
    if (parameter.name == "h.1.mlp.c_proj.weight") Kokkos::deep_copy(parameter.value(), HUGE_VAL);
  network.set_tokens(LmBatch(the_case, network.sequences(), 0).tokens);
  runtime::PhaseTimes phases;
  static_cast<void>(network.forward({}, models::Pass::training, 1, phases));
  EXPECT_EQ(network.first_layer_not_finite({}), 1);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, TransformerOnGrid, ::testing::ValuesIn(grids_4d(world_size())),
                         GridName());

/// The loss of batch 0 as a function of the parameters, on one rank.
class LossOnOneRank {
 public:
  explicit LossOnOneRank(LmCase const& the_case)
      : self_(MPI_COMM_SELF, "self"),
        grid_(self_, {1, 1, 1, 1}),
        network_(grid_, the_case.settings, the_case.num_sequences, the_case.sequence, lm_seed),
        loss_(grid_, network_.logits_placement(), pmm::LossKind::softmax) {
    set_formula_parameters(network_.parameters());
    LmBatch const batch(the_case, network_.sequences(), 0);
    network_.set_tokens(batch.tokens);
    std::vector<std::int8_t> const groups(batch.targets.size(), 0);
    loss_.set_targets({device_copy(groups), device_copy(batch.targets), {}});
  }

  double operator()() {
    auto const& logits = network_.forward(exec_, models::Pass::training, lm_step, phases_);
    return loss_.loss_and_gradient(exec_, logits, network_.logits_gradient());
  }
  void backward() { network_.backward(exec_, phases_); }
  [[nodiscard]] std::vector<models::Parameter<double>>& parameters() { return network_.parameters(); }

 private:
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
  models::Transformer<double> network_;
  pmm::RowLoss<double> loss_;
  runtime::DefaultExec exec_;
  runtime::PhaseTimes phases_;
};

// (L(w + h d) - L(w - h d)) / 2 h = dL/dw . d + O(h^2), with d of small integers.
TEST(Transformer, GradientsAreFiniteDifferences) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name : {"gpt", "llama_dropout"}) {
    SCOPED_TRACE(name);
    LossOnOneRank loss(lm_case(reference.at(name)));
    loss();
    loss.backward();
    std::uint64_t p = 0;
    for (auto& parameter : loss.parameters()) {
      constexpr auto h = 1e-5;
      auto const copy = [](runtime::Vector<double> const& numbers) {
        auto const host = host_copy(numbers); // which may be the same memory
        return std::vector<double>(host.data(), host.data() + host.extent(0));
      };
      auto const start = copy(parameter.value());
      auto const gradient = copy(parameter.gradient());
      auto const direction = [&](std::size_t i) { return small_real(p, static_cast<std::int64_t>(i), 0); };
      auto slope = 0.0, scale = 0.0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        slope += gradient[i] * direction(i);
        scale += std::abs(gradient[i] * direction(i));
      }
      auto const loss_at = [&](double step) {
        auto numbers = start;
        for (std::size_t i = 0; i < numbers.size(); ++i)
          numbers[i] += step * direction(i);
        Kokkos::deep_copy(parameter.value(), device_copy(numbers));
        return loss();
      };
      auto const difference = (loss_at(h) - loss_at(-h)) / (2 * h);
      Kokkos::deep_copy(parameter.value(), device_copy(start));
      EXPECT_NEAR(difference, slope, 1e-6 * scale + 1e-9) << parameter.name;
      ++p;
    }
  }
}

TEST(Transformer, RefusesWhatCannotBeCut) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto the_case = small_gpt();
  auto const plan = [&](pmm::GridShape const& shape, std::int64_t num_sequences, std::int64_t sequence) {
    static_cast<void>(plan_transformer(shape, {}, the_case.settings, num_sequences, sequence));
  };
  EXPECT_THROW(plan({1, 3, 1, 1}, 8, 6), runtime::UserError); // heads over x
  EXPECT_THROW(plan({1, 1, 1, 1}, 8, 7), runtime::UserError); // positions
  EXPECT_THROW(plan({3, 1, 1, 3}, 8, 6), runtime::UserError); // sequences over data and z
  EXPECT_NO_THROW(plan({2, 4, 1, 4}, 8, 6));
  the_case.settings.num_kv_heads = 2;
  EXPECT_NO_THROW(plan({1, 4, 1, 1}, 8, 6));
  EXPECT_THROW(plan({1, 8, 1, 1}, 8, 6), runtime::UserError); // fewer heads than x
  the_case.settings.num_heads = 16;
  the_case.settings.num_kv_heads = 4;
  EXPECT_THROW(plan({1, 3, 1, 1}, 8, 6), runtime::UserError);  // neither divides the other
  EXPECT_THROW(plan({1, 12, 1, 1}, 8, 6), runtime::UserError); // a multiple that does not divide the heads
  the_case = small_gpt();

  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  models::Transformer<double> network(grid, the_case.settings, 8, 6, 1);
  std::vector<std::int32_t> ids(48, 23);
  EXPECT_NO_THROW(network.set_tokens(ids));
  ids[5] = 24;
  EXPECT_THROW(network.set_tokens(ids), runtime::Error);
  ids[5] = -1;
  EXPECT_THROW(network.set_tokens(ids), runtime::Error);
  EXPECT_THROW(network.set_tokens(std::span(ids).first(42)), runtime::Error);
}

} // namespace
} // namespace orthant::testing
