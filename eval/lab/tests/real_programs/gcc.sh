BUILT_gcc="cc1 34"
gcc() { "$@" sh -c "gcc -O2 -S -o - $inputs/big.c | sha256sum"; }
