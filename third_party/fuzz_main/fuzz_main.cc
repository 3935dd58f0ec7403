// Runs a fuzzer's function over the files named on the command line, and over a few inputs that
// need no file: empty, and runs of one byte with lengths around powers of two.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (const uint8_t byte : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
    for (size_t power = 1; power <= 65536; power *= 2) {
      for (size_t size = power - 1; size <= power + 1; ++size) {
        const std::vector<uint8_t> input(size, byte);
        LLVMFuzzerTestOneInput(input.data(), input.size());
      }
    }
  }
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot open %s\n", argv[i]);
      return 1;
    }
    const std::vector<char> input{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%d files run over\n", argc - 1);
  return 0;
}
