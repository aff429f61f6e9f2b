memcached() { # what a client read of what it had set, again and again
  local sock=$work/memcached.sock server
  rm -f "$sock"
  "$@" memcached -u root -m 80 -t 2 -s "$sock" & server=$!
  /usr/bin/python3 "$inputs/memcached_client.py" "$sock" "$turn" "$built"
  kill "$(pgrep -x memcached)"
  wait "$server" || true
}
