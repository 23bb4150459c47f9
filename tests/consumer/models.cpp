// Runs TorchScript models that use the operators: models OUTPUT.pt MODEL.pt... saves what each returns.
#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  try {
    std::vector<at::Tensor> outputs;
    for (int i = 2; i < argc; ++i) {
      auto model = torch::jit::load(argv[i]);
      const auto output = model.forward({torch::ones({2, 11, 3})}).toTensor();
      std::cout << argv[i] << "\n" << output[0][0] << "\n";
      outputs.push_back(output);
    }
    const auto bytes = torch::jit::pickle_save(outputs);
    std::ofstream(argv[1], std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
