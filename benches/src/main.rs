//! Measures Tidemill side by side with its peers, in one run, and prints ratios.
//!
//! `cargo run --release -p tidemill-benches -- start [ROUNDS]`: what it costs to start a job. Every
//! subject runs once per round, in turn, so that whatever else the machine does hits all alike.
//!
//! `cargo run --release -p tidemill-benches -- sandbox [ROUNDS]`: the sandbox alone, for whoever works on
//! it and wants to look at one thing under perf or strace. `rate [SECONDS]`: how many per second, beside
//! bwrap. `hogs [ROUNDS]`: beside processes that are always busy. `growth [ROUNDS]`: whether the last of
//! very many costs what the first did. `unpack [ROUNDS]`: an image beside umoci and skopeo.

mod figures;
mod peers;
mod rate;
mod runner;
mod start;
mod unpack;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let scenario = args.next().unwrap_or_default();
    if scenario == tidemill_sandbox::LAUNCHER_ARG {
        return tidemill_sandbox::launcher_main();
    }
    if let Some(code) = peers::in_own_mounts() {
        return code;
    }
    let given = args.next().and_then(|text| text.parse().ok());
    let rounds = given.unwrap_or(200);
    let result = match scenario.as_str() {
        "start" => start::run(rounds),
        "sandbox" => start::sandboxes(rounds),
        "rate" => rate::rates(rounds),
        "hogs" => rate::beside_hogs(rounds),
        "growth" => rate::growth(rounds),
        "unpack" => unpack::run(given.unwrap_or(5)),
        _ => Err(anyhow::anyhow!(
            "usage: tidemill-benches start|sandbox|hogs|growth|unpack [ROUNDS], or rate [SECONDS]"
        )),
    };
    match result {
        Ok(table) => {
            #[expect(clippy::print_stdout, reason = "the table is what this program is for")]
            {
                print!("{table}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a program tells people on stderr")]
            {
                eprintln!("tidemill-benches: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
