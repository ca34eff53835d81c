//! Skips: counted and named, never a silent pass.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// The file that the caller of the suite wants skips in, one line each.
const SKIPS: &str = "TIDEMILL_TEST_SKIPS";

/// Says that the test which calls this cannot run here, and why.
pub fn skip(why: &str) {
    let line = format!("{}: {why}\n", test_name());
    // Written past the capture of the test runner, so that it is seen although the test passes.
    let shown = io::stderr().write_all(format!("skipped: {line}").as_bytes());
    shown.expect("standard error can be written");
    if let Some(path) = env::var_os(SKIPS).filter(|path| !path.is_empty()) {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot note a skip in {}: {error}", path.display()));
    }
}

/// The name of the test that calls this.
pub fn test_name() -> String {
    env::var("NEXTEST_TEST_NAME")
        .ok()
        .or_else(|| {
            let name = thread::current().name().map(str::to_owned)?;
            (name != "main").then_some(name)
        })
        .unwrap_or_else(|| "a test".to_owned())
}
