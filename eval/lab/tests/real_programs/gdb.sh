gdb() { # reads and writes variables of a program that uses them, continues it, detaches
  local out=$work/debuggee.out program debuggee at
  "$@" "$inputs/debuggee" "$turn" > "$out" & program=$!
  until grep -q ready "$out" 2>/dev/null; do sleep 0.1; done
  debuggee=$(sed -n 's/^ready //p' "$out")
  touch "$built"
  sleep $((turn / 2))
  command gdb -nx -batch -p "$debuggee" -iex 'set debuginfod enabled off' -ex 'print words[77]' -ex 'print words[3000000]' \
    -ex 'set var words[77] = 5' -ex 'set var words[3000000] = 6' -ex 'print words[77] + words[3000000]' \
    -ex 'tbreak turned' -ex continue -ex 'print turns > 0' -ex detach 2>"$work/gdb.err" | grep -aE '^\$|Temporary breakpoint 1, ' | sed 's/.*\(Temporary .*turned\).*/\1/'
  wait "$program"
  sed 1d "$out"
}
