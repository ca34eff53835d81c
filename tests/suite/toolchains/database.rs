//! PostgreSQL: a server with parallel workers, shared memory and a local socket, stopped and started
//! again by the job. What is left of one that was forgotten is in `services.rs`.

use rstest::rstest;
use tidemill_tests::{Mode, World};

use super::assert_works;
use crate::services::postgres_programs;

/// Four clients change a quarter of the rows each, at the same time.
const WORK: &str = r#"
set -e
initdb -D db -A trust -N -U me >/dev/null
start() {
    pg_ctl -D db -l log -w -o "-h '' -k /tmp -c fsync=off" start >/dev/null
}
stop() {
    pg_ctl -D db -m fast -w stop >/dev/null
}
ask() {
    psql -h /tmp -U me -AtqX -v ON_ERROR_STOP=1 postgres "$@"
}
start
ask -c 'create table t (n int primary key)' -c 'insert into t select generate_series(1, 10000)'
for i in 1 2 3 4; do
    ask -c "update t set n = n + 10000 * $i where n % 4 = $i - 1 and n <= 10000" &
done
wait
parallel='set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
          set min_parallel_table_scan_size = 0; set max_parallel_workers_per_gather = 2'
ask -c "$parallel" -c 'explain (analyze, costs off) select sum(n) from t' |
    grep -o 'Workers Launched: 2'
ask -c 'select count(*), sum(n) from t'
stop
start
ask -c 'select max(n) from t'
stop
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn postgres_serves_many_clients_and_keeps_what_they_wrote(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(bin) = postgres_programs() else {
        return;
    };
    // Not named as another user: a job of root is somebody else anyway, whom the server accepts.
    let text = format!("PATH={bin}:$PATH; {WORK}");
    let expected = "Workers Launched: 2\n10000|300005000\n49999\n";
    assert_works(world.job(&text), expected);
}
