#include "cuda_runtime_binding.hpp"

#include <string>

#include "cuda_runtime.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

std::string dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(py::str(text));
}

py::object version_or_none(int version) {
  if (version == 0) {
    return py::none();
  }
  return py::str(dotted(version / 1000, version % 1000 / 10));
}

py::dict to_dict(const CudaRuntime& runtime) {
  py::list devices;
  for (const CudaDevice& device : runtime.devices) {
    py::dict entry;
    entry["name"] = device.name;
    entry["compute_capability"] =
        dotted(device.capability_major, device.capability_minor);
    devices.append(entry);
  }
  py::dict result;
  result["toolkit"] = version_or_none(runtime.toolkit_version);
  result["driver"] = version_or_none(runtime.driver_version);
  result["devices"] = devices;
  result["problem"] = text_or_none(runtime.problem);
  return result;
}

py::object cuda_runtime() {
  if constexpr (kBuiltWithCuda) {
    return to_dict(cuda::describe_runtime());
  } else {
    return py::none();
  }
}

py::object cuda_problem(int device) {
  if constexpr (kBuiltWithCuda) {
    return text_or_none(cuda::kernel_problem(device));
  } else {
    return py::str("this library was built without CUDA");
  }
}

}  // namespace

void register_cuda_runtime(py::module_& module) {
  module.def("cuda_runtime", &cuda_runtime,
             "Describe the CUDA half, or return None in a build without it.");
  module.def("cuda_problem", &cuda_problem, py::arg("device_index"),
             "Say why kernels cannot run on a device, or return None.");
}

}  // namespace hvs
