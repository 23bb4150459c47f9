// Runs the models of export.py and the same computation by the C++ API: inference FOLDER LENGTH.
//
// FOLDER/results.pt gets the three results, which are equal bit for bit.
#include <chunked_noise/chunked_noise.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

at::Tensor direct(const at::Tensor& x) {
  const auto noise = chunked_noise::sample_chunked_noise(x.sizes(), /*seed=*/~std::uint64_t{4}, /*chunk_size=*/16,
                                                         x.device(), x.scalar_type());
  return torch::cumsum(x + noise, 1);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: inference FOLDER LENGTH\n";
    return 2;
  }
  const std::string folder = argv[1];
  try {
    const torch::InferenceMode guard;
    const auto x = torch::ones({2, std::atoi(argv[2]), 8});

    auto scripted = torch::jit::load(folder + "/scripted.pt");
    torch::inductor::AOTIModelPackageLoader package(folder + "/package.pt2");
    std::vector<at::Tensor> inputs{x};
    const std::vector<at::Tensor> results{scripted.forward({x}).toTensor(), package.run(inputs)[0], direct(x)};

    const bool same = results[0].equal(results[1]) && results[0].equal(results[2]);
    std::cout << "TorchScript, AOTInductor and C++ " << (same ? "agree" : "differ") << "\n";
    const auto bytes = torch::pickle_save(results);
    std::ofstream(folder + "/results.pt", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return same ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
