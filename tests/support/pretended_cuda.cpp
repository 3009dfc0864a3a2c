// What a CPU build of PyTorch lacks before autograd can run over tensors that say they are on CUDA:
// an answer that there is CUDA, and a device guard, which has one stream and nothing to do.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <cstring>

namespace {

constexpr auto CUDA = c10::DeviceType::CUDA;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<CUDA> {
  static c10::Stream stream() {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(CUDA, 0));
  }
  c10::Device exchangeDevice(c10::Device /*unused*/) const override {
    return c10::Device(CUDA, 0);
  }
  c10::Device getDevice() const override {
    return c10::Device(CUDA, 0);
  }
  c10::Stream getStream(c10::Device /*unused*/) const noexcept override {
    return stream();
  }
  c10::Stream getDefaultStream(c10::Device /*unused*/) const override {
    return stream();
  }
  c10::Stream exchangeStream(c10::Stream /*unused*/) const noexcept override {
    return stream();
  }
};

struct Hooks final : at::CUDAHooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool hasCUDA() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex /*unused*/) const override {
    return true;
  }
};
static_assert(sizeof(Hooks) == sizeof(void*), "only a table of functions, which can be exchanged");

std::atomic<const c10::impl::DeviceGuardImplInterface*>& registered() {
  return c10::impl::device_guard_impl_registry[static_cast<size_t>(CUDA)];
}

// PyTorch makes its hooks once and keeps them; what can be changed is the functions they have.
void* hooks() {
  return const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
}

const c10::impl::DeviceGuardImplInterface* guard_before = nullptr;
void* functions_before = nullptr;

} // namespace

extern "C" void begin_pretending() {
  static const Guard guard;
  static const Hooks pretended;
  guard_before = registered().exchange(&guard);
  std::memcpy(&functions_before, hooks(), sizeof(void*));
  std::memcpy(hooks(), static_cast<const void*>(&pretended), sizeof(void*));
}

// The next use of CUDA asks again whether there is any.
extern "C" void end_pretending() {
  std::memcpy(hooks(), &functions_before, sizeof(void*));
  registered().store(guard_before);
  torch::utils::set_requires_device_init(CUDA, true);
}
