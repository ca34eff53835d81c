//! Programs that try to break out of a sandbox, one per subcommand.
//!
//! Each says in one line what came of it: `safe: …` with exit code 0 if everything was refused,
//! `broken: …` with 1 if something was let through, `absent: …` with 2 if this host has nothing to
//! try it on. It knows nothing of the product. Nothing is exploited: a probe asks for something that
//! it must not get, and gives it back at once. Start reading at `table.rs`.

mod attempt;
mod bait;
mod cases;
mod sys;
mod table;
mod verdict;

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// The exit code for wrong usage, or a probe that could not even begin.
const NO_VERDICT: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["interpreted", ..] => say("interpreted by the probe").map(|()| ExitCode::SUCCESS),
        ["list"] => list(),
        ["table"] => say(&table::markdown()).map(|()| ExitCode::SUCCESS),
        ["bait", directory, ..] => bait::lay(Path::new(directory)).map(|()| ExitCode::SUCCESS),
        ["with-bait", directory, ..] => bait::around(directory, &arguments[2..]),
        [name] => try_case(name),
        _ => Err(io::Error::other("usage: probe CASE | list | table")),
    };
    result.unwrap_or_else(|error| {
        // Nobody is left to tell if this fails too.
        drop(writeln!(io::stderr(), "probe: {error}"));
        ExitCode::from(NO_VERDICT)
    })
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

fn list() -> io::Result<ExitCode> {
    for (_, cases) in table::GROUPS {
        for case in *cases {
            say(case.name)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn try_case(name: &str) -> io::Result<ExitCode> {
    let Some(case) = table::find(name) else {
        return Err(io::Error::other(format!("there is no case `{name}`")));
    };
    let verdict = (case.run)();
    say(&verdict.to_string())?;
    Ok(ExitCode::from(verdict.code()))
}
