//! Plays seeds from the command line.

use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;

use tidemill_sim::{Failure, Mutant, Options, Schedule, play, play_seeds};

const USAGE: &str = "\
usage: tidemill-sim --seed N [--keep STEPS] [--mutant NAME]
       tidemill-sim --seeds A..B [--mutant NAME]
       tidemill-sim --list

  --seed N        play one seed and show everything that happens
  --keep STEPS    with only these of its steps, for example 0,3,7
  --seeds A..B    play many seeds, B not among them; show what happened, and what failed
  --mutant NAME   with a dispatcher that is broken in this way
  --list          the names of the mutants
";

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    seed: Option<u64>,
    keep: Option<Vec<usize>>,
    seeds: Option<Range<u64>>,
    mutant: Option<Mutant>,
    list: bool,
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let result = match parse(std::env::args().skip(1)) {
        Ok(arguments) => run(&arguments, &mut out),
        Err(error) => {
            let mut err = io::stderr().lock();
            // Without standard error there is nobody to tell.
            write!(err, "{error}\n\n{USAGE}").ok();
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // Whoever reads may stop reading.
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        if word == "--list" {
            arguments.list = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("`{word}` needs a value"))?;
        let wrong = || format!("`{word}` does not take `{value}`");
        match word.as_str() {
            "--seed" => arguments.seed = Some(value.parse().map_err(|_| wrong())?),
            "--keep" => {
                let numbers = value.split(',').map(str::parse);
                arguments.keep = Some(numbers.collect::<Result<_, _>>().map_err(|_| wrong())?);
            }
            "--seeds" => {
                let (start, end) = value.split_once("..").ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
                let seeds = number(start)?..number(end)?;
                if seeds.is_empty() {
                    return Err(format!("there is no seed in {value}"));
                }
                arguments.seeds = Some(seeds);
            }
            "--mutant" => {
                let mutant = value.parse::<Mutant>();
                arguments.mutant = Some(mutant.map_err(|error| error.to_string())?);
            }
            _ => return Err(format!("there is no option `{word}`")),
        }
    }
    if arguments.seed.is_none() && arguments.seeds.is_none() && !arguments.list {
        return Err("nothing to do".to_owned());
    }
    Ok(arguments)
}

/// True if nothing failed.
fn run(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    if arguments.list {
        for mutant in Mutant::ALL {
            writeln!(out, "{mutant}")?;
        }
    }
    let mut passed = true;
    if let Some(seed) = arguments.seed {
        passed &= run_one(seed, arguments, out)?;
    }
    if let Some(seeds) = &arguments.seeds {
        passed &= run_many(seeds.clone(), arguments.mutant, out)?;
    }
    Ok(passed)
}

fn run_one(seed: u64, arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    let mut schedule = Schedule::of(seed);
    if let Some(numbers) = &arguments.keep {
        schedule = schedule.keep(numbers);
    }
    let options = Options {
        mutant: arguments.mutant,
        trace: true,
    };
    let report = play(&schedule, options);
    writeln!(out, "{schedule}")?;
    for line in &report.trace {
        writeln!(out, "{line}")?;
    }
    match &report.fault {
        None => writeln!(out, "\n{} messages, no rule is broken", report.messages)?,
        Some(fault) => writeln!(out, "\n{fault}")?,
    }
    if let (Some(fault), None) = (report.fault.clone(), &arguments.keep) {
        let mutant = arguments.mutant;
        let failure = Failure {
            seed,
            fault,
            mutant,
        };
        writeln!(out, "\n{}", failure.explain())?;
    }
    Ok(report.fault.is_none())
}

fn run_many(seeds: Range<u64>, mutant: Option<Mutant>, out: &mut impl Write) -> io::Result<bool> {
    let summary = play_seeds(seeds, mutant);
    writeln!(out, "{}", summary.coverage)?;
    writeln!(
        out,
        "{} seeds, {} messages",
        summary.seeds, summary.messages
    )?;
    for failure in &summary.failures {
        writeln!(out, "{failure}")?;
    }
    if let Some(failure) = summary.failures.first() {
        writeln!(out, "\n{}", failure.explain())?;
    }
    Ok(summary.failures.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Arguments, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_say_what_to_play() {
        let expected = Arguments {
            seed: Some(5),
            keep: Some(vec![1, 2]),
            mutant: Some(Mutant::LoseRelease),
            ..Arguments::default()
        };
        let line = "--seed 5 --keep 1,2 --mutant lose-release";
        assert_eq!(parse_line(line), Ok(expected));
        let seeds = parse_line("--seeds 3..7").map(|arguments| arguments.seeds);
        assert_eq!(seeds, Ok(Some(3..7)));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, expected) in [
            ("", "nothing to do"),
            ("--seed", "`--seed` needs a value"),
            ("--seed x", "`--seed` does not take `x`"),
            ("--keep 1,x --seed 1", "`--keep` does not take `1,x`"),
            ("--seeds 5", "`--seeds` does not take `5`"),
            ("--seeds 5..5", "there is no seed in 5..5"),
            (
                "--mutant x",
                "there is no mutant `x`; `--list` shows their names",
            ),
            ("--speed 1", "there is no option `--speed`"),
        ] {
            assert_eq!(parse_line(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_seed_is_shown_with_its_schedule_and_all_that_happens() {
        let mut out = Vec::new();
        let arguments = parse_line("--seed 3 --mutant double-ending");
        let passed = run(&arguments.unwrap_or_default(), &mut out).unwrap_or(true);
        let text = String::from_utf8_lossy(&out);
        assert!(!passed, "{text}");
        for part in ["seed 3: ", "enqueue job", "a job ended twice", "shrunk to"] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
}
