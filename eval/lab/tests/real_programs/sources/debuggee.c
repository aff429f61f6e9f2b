// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums 32 MiB of words until its time is up and a debugger has changed two of them, then says what it found.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define COUNT (4l << 20)
volatile unsigned long *words;
volatile long turns;
__attribute__((noinline)) void turned(void) { turns++; }
int main(int argc, char **argv) {
  (void)argc;
  words = malloc(COUNT * sizeof *words);
  for (long n = 0; n < COUNT; n++) words[n] = n * 3;
  printf("ready %d\n", getpid());
  fflush(stdout);
  time_t end = time(0) + atoi(argv[1]), latest = end + 200;
  long wrong, changed;
  do {
    wrong = changed = 0;
    for (long n = 0; n < COUNT; n++) {
      if (words[n] == (unsigned long)n * 3) continue;
      int ours = (n == 77 && words[n] == 5) || (n == 3000000 && words[n] == 6);
      if (ours) changed++; else wrong++;
    }
    turned();
  } while (time(0) < end || (changed < 2 && time(0) < latest));
  printf("changed %ld, wrong %ld\n", changed, wrong);
}
