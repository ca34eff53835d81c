//! No case of the probe is forgotten.

use std::collections::BTreeSet;
use std::process::Command;

use tidemill_tests::probe;

use crate::{
    probe_descriptors, probe_exhaustion, probe_host, probe_identity, probe_kernel,
    probe_kernel_memory, probe_life, probe_memory, probe_network, probe_output, probe_shared,
};

#[test]
fn every_case_has_its_tests() {
    let tried: BTreeSet<&str> = [
        probe_descriptors::PLAIN,
        probe_exhaustion::PLAIN,
        probe_exhaustion::JUDGED,
        probe_host::PLAIN,
        probe_host::JUDGED,
        probe_identity::PLAIN,
        probe_kernel::PLAIN,
        probe_kernel_memory::PLAIN,
        probe_kernel_memory::JUDGED,
        probe_life::PLAIN,
        probe_life::JUDGED,
        probe_memory::PLAIN,
        probe_network::PLAIN,
        probe_network::JUDGED,
        probe_output::JUDGED,
        probe_shared::PLAIN,
        probe_shared::JUDGED,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect();
    let output = Command::new(probe()).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let known: BTreeSet<&str> = text.lines().collect();
    assert!(known.len() > 50, "{text}");
    assert_eq!(tried, known);
}
