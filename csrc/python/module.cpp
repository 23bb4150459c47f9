// The Python module chunked_noise._C: what the operators cannot offer. Importing it loads libchunked_noise.so, which
// registers the operators.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "chunked_noise/chunked_noise.h"
#include "ops/report.h"

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = chunked_noise::version();
  module.def("derive_chunk_seed", &chunked_noise::derive_chunk_seed, pybind11::arg("seed"),
             pybind11::arg("chunk_index"));
  module.def("describe_engines", &chunked_noise::ops::describe_engines);
}
