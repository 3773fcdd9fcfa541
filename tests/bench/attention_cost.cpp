// SPDX-License-Identifier: Apache-2.0
//
// What causal attention costs on one rank with one thread, forward and backward, in fp32.
//
//   attention_cost [sequences tokens heads kv_heads head_dim]
//
// Without arguments: 12 sequences of 64 tokens with 4 heads of 32, and 8 of 256 with 6 heads of 64. One line of JSON each: the
// seconds of a call (min, median, max) and flops per second at the median. torch_attention.py prints the same of PyTorch.
#include "pmm/attention/attention.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace orthant;
using runtime::DefaultExec;

constexpr int num_warm_up = 5;
constexpr int num_calls = 50;

template<class Call>
void print_times(char const* name, pmm::AttentionShape const& shape, std::int64_t flops, Call const& call) {
  std::vector<double> seconds;
  for (int i = 0; i < num_warm_up + num_calls; ++i) {
    auto const begin = std::chrono::steady_clock::now();
    call();
    auto const end = std::chrono::steady_clock::now();
    if (i >= num_warm_up) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  auto const median = seconds[seconds.size() / 2];
  std::printf("{\"pass\": \"%s\", \"sequences\": %ld, \"tokens\": %ld, \"heads\": %ld, \"kv_heads\": %ld, "
              "\"head_dim\": %ld, \"seconds\": [%.3e, %.3e, %.3e], \"gflops\": %.1f}\n",
              name, static_cast<long>(shape.num_sequences), static_cast<long>(shape.sequence),
              static_cast<long>(shape.num_heads), static_cast<long>(shape.num_kv_heads),
              static_cast<long>(shape.head_dim), seconds.front(), median, seconds.back(),
              static_cast<double>(flops) / median * 1e-9);
}

void measure(pmm::AttentionShape const& shape) {
  DefaultExec const exec;
  runtime::PassLedger passes;
  auto const width = shape.query_columns() + 2 * shape.key_columns();
  auto const matrix = [&](std::int64_t columns) {
    runtime::Matrix<float> const result("orthant::bench::numbers",
                                        static_cast<std::size_t>(shape.num_tokens()),
                                        static_cast<std::size_t>(columns));
    Kokkos::parallel_for(
        "orthant::bench::fill",
        Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(result.size())),
        KOKKOS_LAMBDA(std::int64_t i) {
          result.data()[i] = static_cast<float>(static_cast<double>(i * 2654435761 % 1000003) / 500001.5 - 1);
        });
    return result;
  };
  auto const operands = [&](runtime::Matrix<float> const& all) {
    pmm::Panel<float> const panel(all);
    auto const queries = shape.query_columns();
    auto const keys = shape.key_columns();
    return pmm::AttentionOperands<float>{panel.columns({0, queries}),
                                         panel.columns({queries, queries + keys}),
                                         panel.columns({queries + keys, width})};
  };
  auto const qkv = matrix(width), gradients = matrix(width);
  auto const out = matrix(shape.query_columns()), d_out = matrix(shape.query_columns());
  auto const rows = static_cast<std::size_t>(shape.num_row_numbers());
  runtime::Vector<float> const sums("orthant::bench::sums", rows), terms("orthant::bench::terms", rows);
  print_times("forward", shape, attention_flops(shape), [&] {
    pmm::attention_forward<float>(exec, passes, shape, operands(qkv), out, sums);
    runtime::compat::fence(exec, "attention_cost");
  });
  print_times("backward", shape, attention_backward_flops(shape), [&] {
    pmm::attention_backward<float>(exec, passes, shape, operands(qkv), out, sums, d_out, operands(gradients),
                                   terms);
    runtime::compat::fence(exec, "attention_cost");
  });
}

} // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  if (argc == 6) {
    auto const number = [&](int i) { return std::int64_t{std::atoll(argv[i])}; };
    measure({number(1), number(2), number(3), number(4), number(5)});
    return 0;
  }
  if (argc != 1) {
    std::fprintf(stderr, "usage: attention_cost [sequences tokens heads kv_heads head_dim]\n");
    return 2;
  }
  measure({12, 64, 4, 4, 32});
  measure({8, 256, 6, 6, 64});
  return 0;
}
