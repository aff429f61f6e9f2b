BUILT_sort="sort 50"
sort() { "$@" sh -c "sort -S 80M --parallel=2 $inputs/lines.txt | sha256sum"; }
