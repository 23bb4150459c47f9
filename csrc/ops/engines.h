// What the engines of this build say of themselves.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <utility>
#include <vector>

#include "chunked_noise/export.h"

namespace chunked_noise::ops {

struct EngineReport {
  at::DeviceType device_type;
  std::string (*describe)(at::ScalarType dtype);  // the engine that serves the dtype, and why
  void (*warm_up)(at::Device device);             // makes the checks that the first use of a dtype would make
};

// Called by an engine when it registers its kernels.
void register_report(EngineReport report);

// (device type and dtype, the engine that serves them and why) for every engine; runs checks on CPU.
CHUNKED_NOISE_API std::vector<std::pair<std::string, std::string>> describe_engines();

// Compares the engine of `device` with ATen now, for every dtype, and not at the first use. Nothing for other devices.
CHUNKED_NOISE_API void warm_up(at::Device device);

}  // namespace chunked_noise::ops
