/* Latencies of a load generator, in a histogram: [0] end to end, [1] confirm. */
#include <stdatomic.h>
#include <time.h>

#define BUCKETS 4000 /* by log2 of microseconds, times 100 */
static atomic_long hist[2][BUCKETS];
static atomic_int measuring; /* whether `record` counts */

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void record(int kind, long long ns) {
  if (!atomic_load(&measuring))
    return;
  double us = ns / 1000.0;
  int b = us > 1 ? (int)(__builtin_log2(us) * 100) : 0;
  atomic_fetch_add_explicit(&hist[kind][b < BUCKETS ? b : BUCKETS - 1], 1, memory_order_relaxed);
}
/* Milliseconds that so large a share stays within; -1 when nothing was recorded. */
static double percentile(int kind, double share) {
  long all = 0, seen = 0;
  for (int i = 0; i < BUCKETS; i++)
    all += hist[kind][i];
  for (int i = 0; all && i < BUCKETS; i++)
    if ((seen += hist[kind][i]) >= all * share)
      return __builtin_exp2(i / 100.0) / 1000.0;
  return -1;
}
