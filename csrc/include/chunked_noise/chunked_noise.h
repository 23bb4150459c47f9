// The whole C++ API.
//
// A process links this library or imports the Python package, or both: they share one libchunked_noise.so, which
// registers the operators torch.ops.chunked_noise.* when it is loaded.
#pragma once

#include "chunked_noise/chunking.h"
#include "chunked_noise/export.h"
#include "chunked_noise/noise.h"
#include "chunked_noise/seed.h"

namespace chunked_noise {

// The version of the library, as in version.txt.
CHUNKED_NOISE_API const char* version();

namespace detail {
// A program that only runs TorchScript models names none of our functions, so a linker with --as-needed would drop the
// library and with it the operators. Including this header is a use.
[[maybe_unused, gnu::used]] static const char* (*const keep_library)() = &version;
}  // namespace detail

}  // namespace chunked_noise
