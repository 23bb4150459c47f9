// Calls the C++ API: direct OUTPUT.pt saves noise, and a sequence rebuilt from its padded chunks.
#include <chunked_noise/chunked_noise.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>

static_assert(chunked_noise::derive_chunk_seed(0, 0) == 0xa706dd2f6fe23341, "a constant");

int main(int, char** argv) {
  const auto noise =
      chunked_noise::sample_chunked_noise({2, 11, 3}, ~std::uint64_t{0}, 4, torch::kCPU, torch::kBFloat16);
  auto rebuilt = torch::zeros_like(noise, torch::MemoryFormat::Contiguous);
  for (const auto& chunk : chunked_noise::padded_chunks(4, {noise})) {
    rebuilt.index_put_(chunk.index(), chunk.unpad(chunk.tensors[0]));
  }
  try {
    chunked_noise::sample_chunked_noise({1, 2}, 0, 0, torch::kCPU, torch::kFloat);
    return 1;
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << "\n";
  }
  const auto bytes = torch::pickle_save(std::vector<at::Tensor>{noise.contiguous(), rebuilt});
  std::ofstream(argv[1], std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return 0;
}
