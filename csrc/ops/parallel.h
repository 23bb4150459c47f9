// Loops on torch's own thread pool.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

#include <atomic>
#include <cstdint>
#include <exception>

// ThreadSanitizer does not see how libgomp, which is not built for it, starts threads and waits for them. It is told:
// what comes before the release of an address happens before what follows an acquire of it.
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#else
namespace chunked_noise {
inline void __tsan_release(void*) {}
inline void __tsan_acquire(void*) {}
}  // namespace chunked_noise
#endif

namespace chunked_noise {

// Calls body(begin, end) on pieces of [begin, end) of at least `grain` elements.
//
// at::parallel_for is a template: compiled here it would be serial without OpenMP and would bring a second OpenMP
// runtime with it. The shim runs inside libtorch, so torch.set_num_threads holds.
template <class Body>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const Body& body) {
  struct Context {
    const Body& body;
    std::exception_ptr error;
    std::atomic_flag failed = ATOMIC_FLAG_INIT;
  } context{body, nullptr};
  const auto call = [](std::int64_t piece_begin, std::int64_t piece_end, void* pointer) {
    __tsan_acquire(pointer);
    auto& shared = *static_cast<Context*>(pointer);
    try {
      shared.body(piece_begin, piece_end);
    } catch (...) {
      // An exception must not cross the C interface.
      if (!shared.failed.test_and_set()) {
        shared.error = std::current_exception();
      }
    }
    __tsan_release(&shared.failed);
  };
  __tsan_release(&context);
  const auto status = torch_parallel_for(begin, end, grain, call, &context);
  __tsan_acquire(&context.failed);
  if (context.error) {
    std::rethrow_exception(context.error);
  }
  TORCH_CHECK(status == AOTI_TORCH_SUCCESS, "torch_parallel_for failed");
}

}  // namespace chunked_noise
