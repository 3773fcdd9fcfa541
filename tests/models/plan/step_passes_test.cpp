// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the passes in a list, by numbers that are worked out by hand.

#include "models/gnn/plan/network_step.hpp"
#include "models/layers/rms_norm.hpp"
#include "pmm/attention/attention.hpp"
#include "pmm/experts/routing.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "pmm/rows/activations.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "support/dist_checks.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using Passes = std::vector<runtime::LocalPass>;

// 10 vertices, 4 - 3 - 2 columns: activations of 160, 120 and 80 bytes in fp32, ids of 80, splits of 10, classes of
// 40; two numbers per row of the softmax, 80. Weights and biases of 48, 12, 24 and 8 bytes.
TEST(StepPasses, AreThoseOfATwoLayerNetwork) {
  models::NetworkSettings settings;
  settings.dropout = 0.5;
  models::NetworkShape shape;
  shape.num_vertices = 10;
  shape.widths = {4, 3, 2};
  shape.has_input_dropout = true;
  pmm::StepPlan step({1, 1, 1, 1}, {}, sizeof(float));

  plan_epoch(step, models::plan_network(shape, models::ProductOrder::aggregate_first), settings, {});

  Passes const expected{{"apply_dropout", 160 + 80, 160, 0, 40},
                        {"relu_dropout", 120 + 12 + 80, 120, 0, 30},
                        {"add_bias", 80 + 8, 80},
                        {"softmax", 80 + 10 + 40, 80 + 80, 0, 0, 20, 20},
                        {"softmax_loss", 10 + 40 + 80, 0, 0, 0, 10},
                        {"sum_rows", 80, 8},
                        {"relu_dropout_backward_sum", 120 + 120, 120 + 12},
                        {"local_squared_norm", 48, 0},
                        {"local_squared_norm", 12, 0},
                        {"local_squared_norm", 24, 0},
                        {"local_squared_norm", 8, 0},
                        {"adam_step", 4 * 92, 3 * 92}}; // weight, gradient, two moments
  EXPECT_EQ(passes_of(step), expected);
  EXPECT_EQ(bytes_of_passes(step), 2516);
}

// Columns over two ranks, 10 x 3 on each: 120 bytes of z, 12 of scales, 40 of a number per row, a word of bits per
// row, 80 of ids.
TEST(StepPasses, ANormWhoseRowsAreSplitReadsThemTwice) {
  pmm::StepPlan step({1, 2, 1, 1}, {}, sizeof(float));
  pmm::Placement const z{{pmm::Axis::z, pmm::Axis::x}, {10, 6}};

  models::plan_rms_norm(step, z, true, true);
  models::plan_rms_norm_backward(step, z);

  Passes const expected{{"rms_norm_relu_dropout/squares", 120, 40},
                        {"rms_norm_relu_dropout", 120 + 12 + 40 + 80 + 120, 40 + 40 + 120, 0, 30},
                        {"rms_norm_relu_dropout_backward/row_sums", 240 + 12 + 40 + 40, 40},
                        {"rms_norm_relu_dropout_backward", 240 + 12 + 40 + 40 + 40, 120 + 12}};
  EXPECT_EQ(passes_of(step), expected);
}

// 23 columns: a word of 32 bits, of which 23 are used. fp64, no mask, no residual.
TEST(StepPasses, ANormOfWholeRowsReadsThemOnce) {
  pmm::StepPlan step({1, 1, 1, 1}, {}, sizeof(double));
  pmm::Placement const z{{pmm::Axis::z, pmm::Axis::x}, {5, 23}};

  models::plan_rms_norm(step, z, false, false);
  models::plan_rms_norm_backward(step, z);

  Passes const expected{{"rms_norm_relu_dropout", 920 + 184, 40 + 20 + 920},
                        {"rms_norm_relu_dropout_backward", 1840 + 184 + 40 + 20, 920 + 184}};
  EXPECT_EQ(passes_of(step), expected);
}

// Classes over two ranks: 10 x 3 logits are 120 bytes, a number per row is 40, a maximum with its place 160.
TEST(StepPasses, ClassesThatAreSplitAreReadThreeTimes) {
  pmm::StepPlan step({1, 2, 1, 1}, {}, sizeof(float));
  pmm::Placement const logits{{pmm::Axis::z, pmm::Axis::x}, {10, 6}};

  plan_loss(step, logits, pmm::LossKind::softmax);
  plan_scores(step, logits, pmm::LossKind::binary);

  Passes const expected{{"find_row_maxima", 120, 40, 0, 0, 0, 10},
                        {"sum_exponentials", 120 + 40 + 40, 80, 0, 0, 30, 10},
                        {"softmax_gradient", 120 + 40 + 80 + 10 + 40, 120},
                        {"softmax_loss", 10 + 40 + 80, 0, 0, 0, 10},
                        {"count_entries", 120 + 10 + 30, 0},
                        {"score_binary", 120 + 10 + 30, 0, 0, 0, 60}};
  EXPECT_EQ(passes_of(step), expected);
}

// Two numbers per row in the sums of LayerNorm. 8 tokens of 6 columns are 192 bytes, 64 of a sum pair, 24 of a scale.
TEST(StepPasses, PassesOfTokensCountWhatTakesLongerThanBytes) {
  pmm::StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
  pmm::RowBlock const x{8, 6};

  plan_sum_row_moments(step, pmm::RowNorm::layer, x);
  plan_apply_row_norm(step, pmm::RowNorm::layer, pmm::RowParts::summed, false, x);
  plan_apply_row_norm(step, pmm::RowNorm::layer, pmm::RowParts::whole, false, x);
  plan_row_norm_backward(step, pmm::RowNorm::layer, pmm::RowParts::whole, pmm::Residual::added, false, x);
  plan_gelu(step, 48);
  plan_swiglu_backward(step, 48);
  plan_activate(step, pmm::Activation::elu, 48);
  plan_activate_backward(step, pmm::Activation::leaky_relu, 48, runtime::Wire::bf16);
  plan_add_dropped(step, 8, 6, true);
  plan_drop_rows(step, 8, 6, false);
  // Two sequences of 4 tokens, 3 heads of 2: 10 pairs of each head; 2 products of 4 flops a pair.
  plan_attention_forward(
      step, {.num_sequences = 2, .sequence = 4, .num_heads = 3, .num_kv_heads = 3, .head_dim = 2}, true);
  plan_pair_loss(step, 5);
  plan_choose_experts(step, 8, 4, 2);

  Passes const expected{{"sum_row_moments", 192, 64, 0, 0, 0, 8},
                        {"apply_row_norm", 192 + 24 + 64, 192 + 64},
                        {"apply_row_norm", 192 + 24, 192 + 64, 0, 0, 0, 8},
                        {"row_norm_backward", 3 * 192 + 24 + 64, 192 + 24, 0, 0, 0, 8},
                        {"gelu", 192, 192, 0, 0, 48},
                        {"swiglu_backward", 3 * 192, 2 * 192, 0, 0, 48},
                        {"elu", 192, 192, 0, 0, 48},
                        {"leaky_relu_backward", 192, 96},
                        {"add_dropped", 2 * 192 + 64, 192, 0, 48},
                        {"drop_rows", 192, 192},
                        {"attention_forward", 3 * 192 + 64, 192 + 96, 480, 60, 0, 24},
                        {"pair_loss_and_gradient", 20, 20, 0, 0, 10},
                        {"choose_experts", 128, 160 + 64, 0, 0, 32}};
  EXPECT_EQ(passes_of(step), expected);
}

TEST(StepPasses, APassThatMovesNothingIsNone) {
  pmm::StepPlan step({1, 1, 1, 1}, {}, sizeof(float));
  runtime::PassLedger ledger;

  step.add_pass({"nothing"});
  ledger.add({"nothing"});
  ledger.add({"something", 3, 4});

  EXPECT_TRUE(passes_of(step).empty());
  EXPECT_EQ(ledger.total, (runtime::PassCount{1, 3, 4}));
}

} // namespace
} // namespace orthant::testing
