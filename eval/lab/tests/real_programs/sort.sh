HOLD_sort=2
sort() { "$@" sh -c "sort -S 150M --parallel=2 $inputs/lines.txt | sha256sum"; }
