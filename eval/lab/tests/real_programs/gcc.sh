HOLD_gcc=2
gcc() { "$@" sh -c "gcc -O2 -S -o - $inputs/big.c | sha256sum"; }
