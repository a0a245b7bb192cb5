// Splits a range of rows among threads. The pieces are contiguous and their
// results are merged in order, so that a kernel whose rows do not depend on
// each other gives the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <functional>

namespace hvs::cpu {

// Elements that one thread must have before another one is started: about 50
// microseconds of the slowest kernel, a few times what starting a thread costs.
constexpr int64_t kGrainElements = 128 * 1024;

// How many pieces `parallel_for` makes of `count` rows of `elements_per_row`:
// at least 1, at most `max_threads`.
int num_pieces(int64_t count, int64_t elements_per_row, int max_threads);

// Calls body(piece, begin, end) once for each of `pieces` contiguous pieces of
// [0, count), one thread each, the first on the calling thread; returns when
// all are done. Where the system refuses a thread, the caller does its work.
// `body` must not throw.
void parallel_for(int64_t count,
                  int pieces,
                  const std::function<void(int, int64_t, int64_t)>& body);

}  // namespace hvs::cpu
