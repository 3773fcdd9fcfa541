// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics.hpp"

#include "runtime/together.hpp"

namespace orthant::runtime {

using Json = nlohmann::ordered_json;

Json to_json(EpochRecord const& record) {
  Json json{{"epoch", record.epoch},           {"loss", record.loss},
            {"grad_norms", record.grad_norms}, {"seconds", record.seconds},
            {"comm_bytes", record.comm_bytes}, {"phases", record.phases.to_json()}};
  auto const add = [&](char const* key, std::optional<double> const& value) {
    if (value) json[key] = *value;
  };
  add("train_acc", record.train_acc);
  add("val_acc", record.val_acc);
  add("test_acc", record.test_acc);
  add("val_loss", record.val_loss);
  add("test_loss", record.test_loss);
  return json;
}

MetricsWriter::MetricsWriter(Communicator const& comm, std::string const& path)
    : log_(&comm.instruments().log) {
  together(comm, [&] {
    if (comm.is_root() && !path.empty()) file_ = OutputFile(path, "metrics");
  });
}

void MetricsWriter::write(std::string_view event, Json const& fields) {
  if (!is_on() || failure_) return;
  Json line{{"event", event}};
  line.update(fields);
  try {
    // Text that is no UTF-8 (a path, say) is kept readable rather than refused.
    file_.write(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
    file_.flush();
  } catch (UserError const& error) {
    failure_ = error.what();
    log_->warn("{}; the run goes on without metrics", *failure_);
  }
}

void MetricsWriter::close(Communicator const& comm) {
  together(comm, [&] {
    if (failure_) throw UserError(*failure_);
    file_.close();
  });
}

} // namespace orthant::runtime
