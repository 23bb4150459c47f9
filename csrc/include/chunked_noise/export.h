#pragma once

#if defined(__GNUC__)
#define CHUNKED_NOISE_API __attribute__((visibility("default")))
#else
#define CHUNKED_NOISE_API
#endif
