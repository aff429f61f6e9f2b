/* What a forked child shares with its parent stays shared, as neither writes: Redis saving in the background. Who reads a page
 * through process_vm_readv(2) to copy it gives the parent a page of its own, and memory doubles. Pages that were out at the fork
 * are the child's own copies from then on, a batch of them. */
#include "hot.h"
#define MIB 32ul
static volatile int stop;
static char *m;
static void *heats(void *v) { while (!stop) heat(m, MIB << 20, 0.05); return v; }
static long own(void) {
  long n = 0; uint64_t e = 0; int fd = open("/proc/thread-self/pagemap", O_RDONLY); if (fd < 0) verdict(SKIP, "%s", strerror(errno));
  for (size_t i = 0; i < MIB << 20; i += PG) if (pread(fd, &e, 8, ((uintptr_t)(m + i) >> 12) * 8) == 8) n += e >> 63 & e >> 56 & 1;
  close(fd); return n;
}
int main(void) {
  TEST = "shared_child"; watchdog("does not end");
  /* Not beside a thread's stack, with which the kernel would make it one mapping. */
  char *apart = mmap(0, (MIB << 20) + 2 * PG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (apart == MAP_FAILED) verdict(1, "mmap: %s", strerror(errno));
  m = apart + PG; if (mprotect(m, MIB << 20, PROT_READ | PROT_WRITE)) verdict(1, "mprotect: %s", strerror(errno));
  madvise(m, MIB << 20, MADV_NOHUGEPAGE); slow_memory(1); for (size_t i = 0; i < MIB << 20; i += PG) *(long *)(m + i + 64) = i + 1; slow_memory(0);
  pthread_t t; pthread_create(&t, 0, heats, 0);
  double end = now() + 2; while (now() < end) usleep(10000);
  int hold[2]; if (pipe(hold)) verdict(1, "pipe: %s", strerror(errno));
  pid_t c = fork(); if (c < 0) verdict(1, "fork: %s", strerror(errno));
  if (!c) { close(hold[1]); char b; while (read(hold[0], &b, 1) < 0) ; long bad = 0; for (size_t i = 0; i < MIB << 20; i += PG) bad += *(long *)(m + i + 64) != (long)i + 1; _exit(bad != 0); }
  close(hold[0]); long first = own(); end = now() + 6; while (now() < end) usleep(10000);
  long last = own(), all = (MIB << 20) / PG; stop = 1; pthread_join(t, 0); close(hold[1]);
  int st; while (waitpid(c, &st, 0) < 0) ; if (st) verdict(1, "the child ended with %#x", st);
  for (size_t i = 0; i < MIB << 20; i += PG) if (*(long *)(m + i + 64) != (long)i + 1) verdict(1, "the parent's page %ld is wrong", (long)(i / PG));
  verdict(last - first > all / 16, "of %ld pages %ld are not shared right after the fork, %ld after 6 s", all, first, last);
}
