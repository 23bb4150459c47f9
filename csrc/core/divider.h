// Division by a number that is known before a kernel starts, without a division.
//
// T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2: for dividends
// below 2^N and s = ceil(log2(divisor)), the multiplier ceil(2^(N + s) / divisor) is exact and fits in N + 1 bits.
#pragma once

#include <cstdint>

#include "chunked_noise/seed.h"

namespace chunked_noise {

namespace detail {

template <class UInt>
struct Wide;
template <>
struct Wide<std::uint32_t> {
  using type = std::uint64_t;
};
template <>
struct Wide<std::uint64_t> {
  __extension__ using type = unsigned __int128;
};

}  // namespace detail

// Divides numbers of [0, 2^(bits - 1)) by a number of [1, 2^(bits - 1)).
template <class UInt>
class Divider {
 public:
  struct Result {
    UInt quotient;
    UInt remainder;
  };

  explicit Divider(UInt divisor)
      : divisor_(divisor),
        shift_(ceil_log2(divisor)),
        multiplier_(static_cast<UInt>(((Wide(1) << (bits - 1 + shift_)) + divisor - 1) / divisor)) {}

  CHUNKED_NOISE_HOST_DEVICE UInt divisor() const { return divisor_; }

  CHUNKED_NOISE_HOST_DEVICE Result operator()(UInt dividend) const {
    // Of the product N + s bits are dropped, where N = bits - 1: doubled, it is the high word and s more bits.
    const UInt quotient = static_cast<UInt>(Wide(dividend << 1) * multiplier_ >> bits) >> shift_;
    return {quotient, dividend - quotient * divisor_};
  }

 private:
  using Wide = typename detail::Wide<UInt>::type;
  static constexpr int bits = 8 * sizeof(UInt);

  static int ceil_log2(UInt number) {
    int result = 0;
    while ((UInt{1} << result) < number) {
      ++result;
    }
    return result;
  }

  UInt divisor_;
  int shift_;
  UInt multiplier_;
};

}  // namespace chunked_noise
