//! The network that a job does not have.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rstest::rstest;
use tidemill_tests::{Mode, PATIENCE, World, until};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively};

/// A host that has one of the addresses itself.
const WITH_A_ROUTE: &str = r#"exec unshare --net bash -euc '
ip link set lo up; ip address add 169.254.169.254/32 dev lo; exec "$@"' bash "$@""#;

cases! {
    network;
    socket_families;
    other_transports;
    metadata_services => |probe| probe.loose(super::WITH_A_ROUTE);
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &["open_port"];

/// A port where nothing listens now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn reaches(port: u16) -> bool {
    [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ]
    .iter()
    .any(|address| TcpStream::connect(address).is_ok())
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn open_port_is_open_for_its_own_job_only(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let port = free_port();
    let probe = Probe::new("open_port").variable("PROBE_PORT", port);
    let job = probe.trial(&world, &bait).start();
    job.await_output("safe: ");
    assert!(!reaches(port), "the host reaches a job's port");
    // And so the same port is free for the next job, and for the host.
    let second = probe.trial(&world, &bait).start();
    second.await_output("safe: ");
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    for job in [job, second] {
        job.cancel();
        job.wait();
    }
    assert_lively(&world);
}

#[test]
fn open_port_unconfined() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let port = free_port();
    std::thread::scope(|scope| {
        let probe = Probe::new("open_port").variable("PROBE_PORT", port);
        let probe = probe.loose(r#"timeout 2 "$@" || true"#);
        let world = &world;
        scope.spawn(move || probe.run_unconfined(world));
        until("the host reaches the port", PATIENCE, || {
            reaches(port).then_some(())
        });
    });
}
