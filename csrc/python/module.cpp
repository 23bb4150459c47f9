// The Python module chunked_noise._C: what the operators cannot offer. Importing it loads libchunked_noise.so, which
// registers the operators.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/python_strings.h>

#include <optional>
#include <string>
#include <vector>

#include "chunked_noise/chunked_noise.h"
#include "ops/engines.h"

namespace {

// A plain Python int that fits, as almost every argument is one.
std::optional<std::int64_t> as_plain_integer(PyObject* object) {
  if (!PyLong_CheckExact(object)) {
    return std::nullopt;
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0 ? std::optional<std::int64_t>(value) : std::nullopt;
}

std::optional<std::vector<std::int64_t>> as_plain_shape(PyObject* object) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) {
    return std::nullopt;
  }
  std::vector<std::int64_t> shape;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    const auto size = as_plain_integer(PySequence_Fast_GET_ITEM(object, i));
    if (!size.has_value()) {
      return std::nullopt;
    }
    shape.push_back(*size);
  }
  return shape;
}

// sample_plain(shape, seed, chunk_size, device, dtype, start): the call without the cost of the general one, which for
// one decode step is most of the time. NotImplemented for arguments that are not plain ints, a device or its name, and
// a dtype, and while torch.jit.trace records.
PyObject* sample_plain(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 6, "sample_plain takes 6 arguments, got ", count);
  const auto shape = as_plain_shape(arguments[0]);
  const auto chunk_size = as_plain_integer(arguments[2]);
  const auto start = as_plain_integer(arguments[5]);
  PyObject* const device = arguments[3];
  const bool named_device = PyUnicode_CheckExact(device);
  if (!shape || !chunk_size || !start || !PyLong_CheckExact(arguments[1]) ||
      !(named_device || THPDevice_Check(device)) || !THPDtype_Check(arguments[4]) || torch::jit::tracer::isTracing()) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const std::uint64_t seed = PyLong_AsUnsignedLongLongMask(arguments[1]);  // modulo 2^64
  const at::Device target =
      named_device ? at::Device(THPUtils_unpackString(device)) : reinterpret_cast<THPDevice*>(device)->device;
  const at::ScalarType dtype = reinterpret_cast<THPDtype*>(arguments[4])->scalar_type;
  at::Tensor noise;
  {
    pybind11::gil_scoped_release no_gil;
    noise = chunked_noise::sample_chunked_noise(*shape, seed, *chunk_size, target, dtype, *start);
  }
  return THPVariable_Wrap(std::move(noise));
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"sample_plain", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&sample_plain)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = chunked_noise::version();
  module.def("derive_chunk_seed", &chunked_noise::derive_chunk_seed, pybind11::arg("seed"),
             pybind11::arg("chunk_index"));
  module.def("describe_engines", &chunked_noise::ops::describe_engines);
  module.def("warm_up", [](const std::string& device) { chunked_noise::ops::warm_up(at::Device(device)); });
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) {
    throw pybind11::error_already_set();
  }
}
