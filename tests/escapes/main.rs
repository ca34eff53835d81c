//! Programs that try to break out, each unconfined, as root's job and as a user's: every case of
//! `tests/probes` has a module of its name.
//!
//! `unconfined` proves that the probe can fail. `root` and `rootless` prove that the sandbox holds,
//! that the next job runs, and that nothing is left on the host.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bait;
mod probe;
mod probe_all;
mod probe_descriptors;
mod probe_exhaustion;
mod probe_host;
mod probe_identity;
mod probe_images;
mod probe_kernel;
mod probe_kernel_memory;
mod probe_life;
mod probe_memory;
mod probe_network;
mod probe_output;
mod probe_shared;
mod probe_terminal;

/// Three tests of a case: unconfined it is broken, in the sandbox it is safe. What is different from
/// the plain run stands behind the name.
macro_rules! cases {
    ($($case:ident $(=> $change:expr)?;)*) => {
        /// The cases that are tried so.
        pub(crate) const PLAIN: &[&str] = &[$(stringify!($case)),*];

        $(mod $case {
            use crate::probe::Probe;

            fn probe() -> Probe {
                let probe = Probe::new(stringify!($case));
                $(
                    let change: fn(Probe) -> Probe = $change;
                    let probe = change(probe);
                )?
                probe
            }

            #[test]
            fn unconfined() {
                probe().unconfined();
            }

            #[test]
            fn root() {
                probe().confined(tidemill_tests::Mode::Root);
            }

            #[test]
            fn rootless() {
                probe().confined(tidemill_tests::Mode::Rootless);
            }
        }
        )*
    };
}
pub(crate) use cases;
