// The engine that draws through ATen's generators: on every device that has one, and the reference of all others.
#pragma once

#include "ops/engine.h"

namespace chunked_noise::aten {

void fill(const at::Tensor& out, const Request& request);

}  // namespace chunked_noise::aten
