/* How often is a page out of place when the kernel cannot wait for it? Not a test: counts, for 8 seconds, reads of the
 * program's own pages by /proc/self/mem that are refused (EIO), and of FUTEX_WAKE_OP calls, which write, those that fail
 * (EFAULT); on different pages, as who writes has no shadow. */
#include "hot.h"
#include <linux/futex.h>
#define N 256
int main(void) {
  TEST = "window"; watchdog("a call does not return");
  char *p = slow_map(N * PG, 0); heat(p, N * PG, 2);
  int fd = open("/proc/self/mem", O_RDONLY); long reads = 0, refused = 0, calls = 0, failed = 0, v; double end = now() + 8;
  while (now() < end) for (long n = 0; n < N; n++) {
    if (n & 1) { reads++; refused += pread(fd, &v, 8, (off_t)(uintptr_t)(p + n * PG + 64)) != 8; continue; }
    calls++; uint32_t *w = (uint32_t *)(p + n * PG + 256);
    failed += syscall(SYS_futex, w, FUTEX_WAKE_OP_PRIVATE, 1, 1ul, w + 1, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_EQ, 0)) < 0 && errno == EFAULT;
  }
  verdict(0, "%ld of %ld reads by /proc/self/mem refused, %ld of %ld FUTEX_WAKE_OP failed", refused, reads, failed, calls);
}
