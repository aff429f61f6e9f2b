pg=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

postgresql_prepare() {
  local data=$work/pgdata
  mkdir "$data" && chown 65534:65534 "$data"
  nobody "$pg/initdb" -D "$data" -U terrace --locale=C -E UTF8 --no-sync > /dev/null
  postgresql_start "$data"
  nobody "$pg/pgbench" -h "$data" -U terrace -i -q -s 1 postgres > /dev/null 2>&1
  postgresql_stop
  # Where the other user may not go.
  rm -rf "$inputs/pgdata" && cp -a "$data" "$inputs"
}

postgresql_start() { # data directory, prefix
  local data=$1
  shift
  "$@" setpriv --reuid 65534 --regid 65534 --clear-groups "$pg/postgres" -D "$data" -k "$data" -c listen_addresses= \
    -c fsync=off -c full_page_writes=off -c autovacuum=off -c work_mem=64MB -c max_parallel_workers_per_gather=0 \
    -c shared_buffers=32MB > "$data/log" 2>&1 & postgres=$!
  until nobody "$pg/pg_isready" -q -h "$data" -U terrace; do sleep 0.2; done
}
postgresql_stop() { kill -INT "$(pgrep -x postgres -o)"; wait "$postgres" || true; }

# Keeps some 7 MiB in its own memory and looks at all of it until the time is up: how many are wrong.
churn='create function pg_temp.churn(seconds int) returns bigint language plpgsql as $$
declare kept text[]; wrong bigint; ends timestamptz := clock_timestamp() + seconds * interval $i$1 s$i$;
begin
  select array_agg(repeat(md5(n::text), 8) order by n) into kept from generate_series(1, 25000) n;
  loop
    select count(*) into wrong from unnest(kept) with ordinality u(m, n) where m <> repeat(md5(n::text), 8);
    exit when wrong > 0 or clock_timestamp() > ends;
  end loop;
  return wrong;
end $$'

postgresql() { # what is in the tables after some transactions, and what a backend computes in its own memory
  local data=$work/pgdata psql=(nobody "$pg/psql" -h "$work/pgdata" -U terrace -AtX postgres)
  rm -rf "$data" && cp -a "$inputs/pgdata" "$data"
  postgresql_start "$data" "$@"
  nobody "$pg/pgbench" -h "$data" -U terrace -n -c 1 -t 40 --random-seed=7 postgres > /dev/null 2>&1
  (sleep $((turn / 2)); touch "$built") &
  "${psql[@]}" -c "select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts" \
    -c "select sum(delta), count(*) from pgbench_history" \
    -c "$churn" -c "select 'wrong', pg_temp.churn($((turn + 2)))" \
    -c "select (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches)"
  postgresql_stop
}
