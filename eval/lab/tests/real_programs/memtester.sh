# It locks its memory, which is left alone.
STAYS_memtester=1
BUILT_memtester="memtester 20"
# Random values and the sequential test: all of them take minutes in the guest.
memtester() { MEMTESTER_TEST_MASK=0x101 "$@" memtester 20M 1 | tr '\b' '\n' | grep -aE 'ok|FAIL|Done|Loop' | tr -d ' '; }
