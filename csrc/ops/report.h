#pragma once

#include <string>
#include <utility>
#include <vector>

#include "chunked_noise/export.h"

namespace chunked_noise::ops {

// (device and dtype, the engine that serves them and why) for every engine in this build. Runs the checks of engines
// against `aten`.
CHUNKED_NOISE_API std::vector<std::pair<std::string, std::string>> describe_engines();

}  // namespace chunked_noise::ops
