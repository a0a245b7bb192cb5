#include "parallel.hpp"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace hvs::cpu {

int num_pieces(int64_t count, int64_t elements_per_row, int max_threads) {
  const int64_t rows_per_piece = std::max<int64_t>(
      1, kGrainElements / std::max<int64_t>(1, elements_per_row));
  const int64_t wanted = (count + rows_per_piece - 1) / rows_per_piece;
  return static_cast<int>(
      std::clamp<int64_t>(wanted, 1, std::max(1, max_threads)));
}

void parallel_for(int64_t count,
                  int pieces,
                  const std::function<void(int, int64_t, int64_t)>& body) {
  const auto run = [&](int piece) {
    const int64_t share = count / pieces;
    const int64_t rest = count % pieces;
    const int64_t begin = piece * share + std::min<int64_t>(piece, rest);
    body(piece, begin, begin + share + (piece < rest ? 1 : 0));
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(pieces));
  int started = 1;
  try {
    for (; started < pieces; ++started) {
      threads.emplace_back(run, started);
    }
  } catch (const std::system_error&) {
    // No thread to be had: the loop below does the rest here.
  }
  run(0);
  for (int piece = started; piece < pieces; ++piece) {
    run(piece);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace hvs::cpu
