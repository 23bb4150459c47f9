#include "ops/report.h"

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include "cpu/engine.h"

namespace chunked_noise::ops {

std::vector<std::pair<std::string, std::string>> describe_engines() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble}) {
    rows.emplace_back(c10::str("cpu ", dtype), cpu::describe(dtype));
  }
  rows.emplace_back("others", "aten");
  return rows;
}

}  // namespace chunked_noise::ops
