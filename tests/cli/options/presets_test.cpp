// SPDX-License-Identifier: Apache-2.0
//
// Every preset with every option that could contradict it: what the preset gives bends, and what was given stays.

#include "cli/lm/train_lm_options.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "models/lm/training/language_model.hpp"
#include "support/user_messages.hpp"

#include <array>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sstream>

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

int ranks_of(std::string const& grid) {
  int product = 1;
  std::istringstream stream(grid);
  for (std::string factor; std::getline(stream, factor, 'x');)
    product *= std::stoi(factor);
  return product;
}

class Presets : public ::testing::Test {
 protected:
  static constexpr std::array argv_{"orthant"};
  runtime::Environment environment_{1, argv_.data(), {.starts_kokkos = false}};
  runtime::MetricsWriter metrics_;

  /// The record of `options` as the command line has them, and as the preset leaves them.
  template<class Options, class Add>
  Context read(Options& options, Words words, Add const& add) {
    Command command("train", "");
    add(command, options);
    command.add_common_options();
    EXPECT_TRUE(command.parse(std::move(words)));
    auto const record = runtime::resolved_json(command.resolved(), command.description());
    Context context{environment_, metrics_, record};
    apply_preset(context, options);
    for (auto const& [name, source] : record.at("sources").items())
      if (source == "flag") {
        EXPECT_EQ(context.run_record.at("configuration").at(name), record.at("configuration").at(name))
            << name;
      }
    return context;
  }

  /// The options after the checks of a training.
  TrainLmOptions train_lm(Words words) {
    TrainLmOptions o;
    auto const context =
        read(o, std::move(words), [](Command& command, auto& options) { add_options(command, options); });
    require_effective_optimizer_options(context, o);
    require_effective_expert_options(context, o);
    auto const model = model_of(o);
    auto const shape =
        o.grid == "auto" ? pmm::GridShape{} : models::parse_grid(o.grid, ranks_of(o.grid), inner_axes_of(o));
    std::ignore = models::plan_sequences(shape, {}, model, sequences_of(o));
    models::TrainSettings settings;
    settings.optimizer = optimizer_of(o, o.eval_every);
    std::ignore = models::with_num_steps(settings, o.steps);
    return o;
  }
  TrainOptions train(Words words) {
    TrainOptions o;
    auto const context = read(o, std::move(words), [](Command& command, auto& options) {
      add_preset_option(command, options);
      add_options(command, options);
    });
    settle_idle_options(context, o);
    graph::StoreFacts facts;
    facts.num_vertices = 100;
    facts.num_features = 8;
    facts.feature_kind = graph::FeatureKind::dense;
    facts.num_classes = 3;
    auto settings = model_of(o);
    settings.schedule = models::Schedule::rows; // which every model has
    std::ignore = models::plan_network(facts, settings);
    std::ignore = models::with_num_steps(training_of(o), o.epochs + (o.mode == "full" ? 0 : 1'000'000));
    WeightFiles const files(context, o, {"epoch", o.eval_every, o.patience, {}, o});
    EXPECT_LE(o.finish_full, o.epochs);
    return o;
  }
};

TEST_F(Presets, OfLanguageModelsBendToWhatWasGiven) {
  std::vector<Words> const cases{{"--steps", "20"},
                                 {"--steps", "0"},
                                 {"--steps", "1"},
                                 {"--warmup-steps", "700000"},
                                 {"--lr", "1e-7"},
                                 {"--min-lr", "0.5"},
                                 {"--lr-schedule", "constant"},
                                 {"--lr-schedule", "step", "--lr-step", "3"},
                                 {"--hidden", "100"},
                                 {"--hidden", "6"},
                                 {"--heads", "5"},
                                 {"--kv-heads", "3"},
                                 {"--heads", "6", "--kv-heads", "3"},
                                 {"--heads", "7", "--hidden", "42"},
                                 {"--arch", "llama"},
                                 {"--arch", "gpt2"},
                                 {"--positions", "7"},
                                 {"--accumulate", "7"},
                                 {"--global-batch", "1"},
                                 {"--layers", "1"},
                                 {"--grid", "16x1x1x1"},
                                 {"--grid", "1x1x1x16", "--accumulate", "5"},
                                 {"--grid", "3x4x1x1"},
                                 {"--grid", "1x1x2x3", "--steps", "3", "--lr", "1e-9"},
                                 {"--feed-forward", "10"},
                                 {"--eval-every", "0"},
                                 {"--patience", "1"},
                                 {"--optimizer", "sgd"},
                                 {"--experts", "0"},
                                 {"--experts", "1"},
                                 {"--compute-dtype", "fp64"},
                                 {"--experts", "3"},
                                 {"--sequence", "1"},
                                 {"--clip-norm", "0"}};
  std::vector<Words> const of_experts{{"--top-k", "70"},
                                      {"--moe-every", "40"},
                                      {"--expert-axis", "8", "--grid", "16x1x1x1"},
                                      {"--expert-axis", "4", "--grid", "12x1x1x1", "--top-k", "7"},
                                      {"--experts", "2"}};
  for (auto const& preset : language_model_presets()) {
    if (preset.name == "none") continue;
    auto all = cases;
    if (preset.options.contains("experts")) all.insert(all.end(), of_experts.begin(), of_experts.end());
    for (auto words : all) {
      words.insert(words.end(), {"--preset", std::string(preset.name)});
      SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
      EXPECT_EQ(test::message_of([&] { std::ignore = train_lm(words); }), "no UserError");
    }
  }
}

TEST_F(Presets, OfLanguageModelsBendToTheseNumbers) {
  auto const gpt2 = [&](Words words) {
    words.insert(words.end(), {"--preset", "gpt2"});
    return train_lm(words);
  };
  EXPECT_EQ(gpt2({"--steps", "1500"}).warmup_steps, 5); // 2000 of 600000
  EXPECT_EQ(gpt2({"--steps", "3000"}).warmup_steps, 2000);
  EXPECT_EQ(gpt2({"--warmup-steps", "600000"}).steps, 1200000);
  EXPECT_DOUBLE_EQ(gpt2({"--lr", "1e-5"}).min_lr, 1e-6);
  EXPECT_EQ(gpt2({"--min-lr", "0.5"}).lr, 0.5);
  EXPECT_EQ(gpt2({"--lr-schedule", "constant"}).min_lr, 0);
  EXPECT_EQ(gpt2({"--hidden", "770"}).heads, 11);
  EXPECT_EQ(gpt2({"--heads", "7"}).hidden, 770);
  EXPECT_EQ(gpt2({"--positions", "100"}).sequence, 100);
  EXPECT_EQ(gpt2({"--accumulate", "7"}).global_batch, 483);
  EXPECT_EQ(gpt2({"--grid", "16x1x1x1", "--accumulate", "40"}).global_batch, 640);
  EXPECT_EQ(train_lm({"--preset", "llama3-8b", "--heads", "12"}).kv_heads, 6);
  EXPECT_EQ(train_lm({"--preset", "llama3-8b", "--kv-heads", "5"}).heads, 30);
  EXPECT_EQ(train_lm({"--preset", "mixtral-cpu", "--experts", "1"}).top_k, 1);
  EXPECT_EQ(train_lm({"--preset", "mixtral-cpu", "--top-k", "9"}).experts, 9);
  EXPECT_EQ(train_lm({"--preset", "mixtral-cpu", "--moe-every", "5"}).layers, 5);
}

/// What does not divide is refused in place of another network.
TEST_F(Presets, TheNetworkDoesNotDependOnTheGrid) {
  for (auto const& [preset, words, what] :
       {std::tuple("nanogpt-cpu", Words{"--grid", "1x3x1x1"}, "4 heads with 4 key-value heads cannot be cut"),
        {"llama-cpu", {"--grid", "1x8x1x1"}, "4 heads with 2 key-value heads cannot be cut"},
        {"mixtral-cpu", {"--grid", "3x1x1x1", "--expert-axis", "3"}, "--experts 8 cannot be dealt"}}) {
    auto with = words;
    with.insert(with.end(), {"--preset", preset});
    auto const message = test::message_of([&] { std::ignore = train_lm(with); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    TrainLmOptions o, anywhere;
    auto const add = [](Command& command, auto& options) { add_options(command, options); };
    std::ignore = read(o, with, add);
    std::ignore = read(anywhere, {"--preset", preset}, add);
    EXPECT_EQ(std::tie(o.hidden, o.heads, o.kv_heads, o.experts, o.top_k, o.layers),
              std::tie(anywhere.hidden, anywhere.heads, anywhere.kv_heads, anywhere.experts, anywhere.top_k,
                       anywhere.layers));
  }
}

TEST_F(Presets, OnlyTheOwnOptionsContradictEachOther) {
  auto const refusal = [&](Words words) { return test::message_of([&] { std::ignore = train_lm(words); }); };
  for (std::string const preset : {"gpt2", "mixtral-8x7b"}) {
    auto const has = [&](Words words, std::string const& what) {
      words.insert(words.end(), {"--preset", preset});
      EXPECT_NE(refusal(words).find(what), std::string::npos) << refusal(words);
    };
    has({"--steps", "20", "--warmup-steps", "20"}, "--warmup-steps 20 of a training of 20 steps");
    has({"--lr", "1e-5", "--min-lr", "1e-4"}, "--min-lr 0.0001 is more than --lr 1e-05");
    has({"--lr-schedule", "constant", "--min-lr", "1e-6"}, "--min-lr is what the learning rate decays to");
    has({"--hidden", "100", "--heads", "3"}, "a width of 100 is not divisible by 3 heads");
    has({"--heads", "4", "--kv-heads", "3"}, "4 heads cannot share 3 key-value heads");
    has({"--global-batch", "5", "--accumulate", "2"}, "--accumulate 2 does not divide the 5 sequences");
    has({"--sequence", "9", "--positions", "8"}, "--sequence 9 is longer than the 8 positions");
    has({"--experts", "2", "--top-k", "3"}, "--top-k 3");
  }
}

TEST_F(Presets, OfGraphsBendToWhatWasGiven) {
  std::vector<Words> const cases{{"--epochs", "1"},
                                 {"--epochs", "0"},
                                 {"--eval-every", "0"},
                                 {"--eval-every", "7"},
                                 {"--patience", "3"},
                                 {"--warmup-steps", "20000"},
                                 {"--mode", "minibatch", "--finish-full", "20000"},
                                 {"--mode", "minibatch", "--warmup-steps", "20000"},
                                 {"--lr", "1e-9"},
                                 {"--min-lr", "1", "--lr-schedule", "cosine"},
                                 {"--lr-schedule", "plateau"},
                                 {"--monitor", "loss"},
                                 {"--model", "gat", "--heads", "3"},
                                 {"--model", "gatv2", "--hidden", "20"},
                                 {"--model", "gat", "--heads", "1000"},
                                 {"--model", "gin"},
                                 {"--model", "gin", "--norm", "rms"},
                                 {"--model", "gcn", "--norm", "rms"},
                                 {"--model", "sage"},
                                 {"--model", "gcn", "--operand-dtype", "bf16"},
                                 {"--model", "sgc"},
                                 {"--model", "appnp"},
                                 {"--model", "gcnii"},
                                 {"--model", "gcn", "--layers", "1"},
                                 {"--model", "gcn", "--hidden", "7"},
                                 {"--optimizer", "sgd"},
                                 {"--task", "links"},
                                 {"--mode", "minibatch", "--sampler", "degree", "--accumulate", "2"},
                                 {"--mode", "minibatch", "--sampler", "clusters"},
                                 {"--compute-dtype", "fp64"},
                                 {"--comm-dtype", "fp32"},
                                 {"--dropout", "0"},
                                 {"--bias"},
                                 {"--feature-norm", "none"},
                                 {"--seeds", "3"}};
  for (std::string const preset :
       {"kipf-gcn", "gat-cora", "sgc-cora", "sgc-citeseer", "sgc-pubmed", "appnp-cora", "appnp-citeseer",
        "appnp-pubmed", "gcnii-cora", "gcnii-citeseer", "gcnii-pubmed"})
    for (auto const& words : cases) {
      auto with = words;
      with.insert(with.end(), {"--preset", preset});
      SCOPED_TRACE(fmt::format("{}", fmt::join(with, " ")));
      auto const message = test::message_of([&] { std::ignore = train(with); });
      if (message == "no UserError") continue;
      // It is the user's own, with a default that no preset gives.
      EXPECT_EQ(message, test::message_of([&] { std::ignore = train(words); }));
    }
  for (Words const& words :
       {Words{"--hidden", "20"}, {"--hidden", "7"}, {"--heads", "3"}, {"--norm", "rms"}}) {
    auto with = words;
    with.insert(with.end(), {"--preset", "gat-cora"});
    EXPECT_EQ(test::message_of([&] { std::ignore = train(with); }), "no UserError") << words[0];
  }
}

TEST_F(Presets, OfGraphsBendToTheseNumbers) {
  EXPECT_EQ(train({"--preset", "gat-cora", "--hidden", "20"}).heads, 10);
  EXPECT_EQ(train({"--preset", "gat-cora", "--heads", "3"}).hidden, 66);
  EXPECT_EQ(train({"--preset", "gat-cora", "--eval-every", "0"}).patience, 0);
  EXPECT_EQ(train({"--preset", "gat-cora", "--norm", "rms"}).activation, "elu");
  EXPECT_EQ(train({"--preset", "kipf-gcn", "--warmup-steps", "200"}).epochs, 400);
  EXPECT_EQ(train({"--preset", "kipf-gcn", "--mode", "minibatch", "--finish-full", "201"}).epochs, 401);
  EXPECT_EQ(train({"--preset", "kipf-gcn", "--lr-schedule", "linear", "--min-lr", "0.5"}).lr, 0.5);
}

/// The model is what a preset is named for: what it cannot do is refused as without the preset.
TEST_F(Presets, KeepTheirModel) {
  for (auto const& [preset, model, words] : {std::tuple("sgc-cora", "sgc", Words{"--operand-dtype", "bf16"}),
                                             {"gat-cora", "gat", {"--operand-dtype", "bf16"}},
                                             {"gcnii-cora", "gcnii", {"--operand-dtype", "fp16"}},
                                             {"appnp-cora", "appnp", {"--operand-dtype", "bf16"}}}) {
    auto with = words;
    auto without = words;
    with.insert(with.end(), {"--preset", preset});
    without.insert(without.end(), {"--model", model});
    auto const message = test::message_of([&] { std::ignore = train(with); });
    EXPECT_NE(message.find(fmt::format("--model {}", model)), std::string::npos) << message;
    EXPECT_EQ(message, test::message_of([&] { std::ignore = train(without); }));
  }
}

} // namespace
} // namespace orthant::cli
