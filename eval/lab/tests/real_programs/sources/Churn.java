// SPDX-License-Identifier: MIT OR Apache-2.0
import java.util.ArrayList;
import java.util.HashMap;

/** Keeps some 30 MiB of objects, makes garbage, and looks at all that it keeps until its time is up. */
final class Churn {
    public static void main(String[] args) throws Exception {
        HashMap<Integer, long[]> kept = new HashMap<>();
        for (int n = 0; n < 60_000; n++) {
            long[] words = new long[48];
            java.util.Arrays.fill(words, n * 31L);
            kept.put(n, words);
        }
        java.nio.file.Files.write(java.nio.file.Path.of(args[1]), new byte[0]);
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L;
        long wrong = 0;
        int turn = 0;
        do {
            int at = turn++;
            Thread other = new Thread(() -> {
                ArrayList<String> garbage = new ArrayList<>();
                for (int n = 0; n < 20_000; n++) {
                    garbage.add("garbage " + at + n);
                }
            });
            other.start();
            for (int n = 0; n < 60_000; n++) {
                long[] words = kept.get(n);
                for (long word : words) {
                    wrong += word == n * 31L ? 0 : 1;
                }
                if (n % 16 == at % 16) {
                    kept.put(n, words.clone());
                }
            }
            other.join();
        } while (System.nanoTime() < end);
        long sum = 0;
        for (int n = 0; n < 60_000; n++) {
            sum = sum * 1_000_003 + kept.get(n)[n % 48];
        }
        System.out.println("jvm " + kept.size() + " kept, sum " + sum + ", wrong " + wrong);
    }
}
