#pragma once

namespace chunked_noise::ops {

// Whether this is the first copy of the library in the process. Every registration block asks: with plain
// TORCH_LIBRARY a second copy, as a program and a Python package may bring, would throw inside dlopen and abort.
bool first_copy();

}  // namespace chunked_noise::ops
