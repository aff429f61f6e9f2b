BUILT_sort="sort 100"
sort() { "$@" sh -c "sort -S 150M --parallel=2 $inputs/lines.txt | sha256sum"; }
