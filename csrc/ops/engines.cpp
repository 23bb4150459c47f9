#include "ops/engines.h"

#include <c10/util/StringUtil.h>

#include "ops/checks.h"

namespace chunked_noise::ops {
namespace {

std::vector<EngineReport>& reports() {
  static std::vector<EngineReport> reports;
  return reports;
}

}  // namespace

void register_report(EngineReport report) { reports().push_back(report); }

std::vector<std::pair<std::string, std::string>> describe_engines() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const EngineReport& report : reports()) {
    for (const at::ScalarType dtype : noise_dtypes) {
      rows.emplace_back(c10::str(c10::DeviceTypeName(report.device_type, /*lower_case=*/true), " ", dtype),
                        report.describe(dtype));
    }
  }
  rows.emplace_back("other devices", "aten");
  return rows;
}

void warm_up(at::Device device) {
  for (const EngineReport& report : reports()) {
    if (report.device_type == device.type()) {
      report.warm_up(device);
    }
  }
}

}  // namespace chunked_noise::ops
