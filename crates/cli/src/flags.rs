//! The flags of a job as a draft, with the flag that each part came from.

use std::collections::BTreeMap;

use tidemill_core::diagnostic::pointer;
use tidemill_core::draft::{Draft, LayerDraft, LimitsDraft, Located};
use tidemill_core::{Diagnostic, DiagnosticCode};

use crate::args::JobArgs;
use crate::diagnostics::FlagPlaces;

/// Reads the flags. Relative paths start from `cwd`.
pub(crate) fn draft_of(args: &JobArgs, cwd: &str) -> (Draft, FlagPlaces) {
    let mut reader = Reader {
        cwd,
        places: FlagPlaces::default(),
        found: Vec::new(),
    };
    let (program, arguments) = match args.command.split_first() {
        Some((program, arguments)) => (Some(program.clone()), arguments.to_vec()),
        None => (None, Vec::new()),
    };
    if program.is_some() {
        reader.places.insert("/program", "PROGRAM");
        reader.places.insert("/args", "ARGS");
    }
    let draft = Draft {
        name: reader.text("/name", "--name", &args.name),
        labels: reader.labels(&args.labels),
        program,
        args: arguments,
        entrypoint: reader
            .text("/entrypoint", "--entrypoint", &args.entrypoint)
            .map(|text| {
                Some(text)
                    .filter(|text| !text.is_empty())
                    .into_iter()
                    .collect()
            }),
        image: reader.located("/image", "--image", &args.image),
        platform: reader.text("/platform", "--platform", &args.platform),
        layers: reader.layers(&args.layers),
        workspace: reader.located("/workspace", "--workspace", &args.workspace),
        no_workspace: reader.switch("/no_workspace", "--no-workspace", args.no_workspace),
        write: reader.switch("/write", "--write", args.write),
        workdir: reader.text("/workdir", "--workdir", &args.workdir),
        env: reader.variables(&args.env),
        pass_env: reader.passed(&args.pass_env),
        network: reader.text("/network", "--net", &args.net),
        grants: reader.grants(&args.grants),
        limits: reader.limits(args),
        stop_signal: reader.text("/stop_signal", "--stop-signal", &args.stop_signal),
        user: reader.text("/user", "--user", &args.user),
        stdin: reader
            .switch("/stdin", "--stdin", args.stdin)
            .then(|| "inherit".to_owned()),
        tty: reader.switch("/tty", "--tty", args.tty),
        ..Draft::default()
    };
    let Reader { places, found, .. } = reader;
    (Draft { found, ..draft }, places)
}

struct Reader<'a> {
    cwd: &'a str,
    places: FlagPlaces,
    found: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn text(&mut self, place: &str, flag: &str, value: &Option<String>) -> Option<String> {
        if value.is_some() {
            self.places.insert(place, flag);
        }
        value.clone()
    }

    fn located(&mut self, place: &str, flag: &str, value: &Option<String>) -> Option<Located> {
        self.text(place, flag, value)
            .map(|text| Located::new(text, self.cwd))
    }

    fn switch(&mut self, place: &str, flag: &str, given: bool) -> bool {
        if given {
            self.places.insert(place, flag);
        }
        given
    }

    fn limits(&mut self, args: &JobArgs) -> LimitsDraft {
        LimitsDraft {
            memory: self.text("/limits/memory", "--memory", &args.memory),
            cpus: self.text("/limits/cpus", "--cpus", &args.cpus),
            pids: self.text("/limits/pids", "--pids", &args.pids),
            disk: self.text("/limits/disk", "--disk", &args.disk),
            shm: self.text("/limits/shm", "--shm", &args.shm),
            timeout: self.text("/limits/timeout", "--timeout", &args.timeout),
            grace: self.text("/limits/grace", "--grace", &args.grace),
            log: self.text("/limits/log", "--log-limit", &args.log_limit),
            open_files: self.text("/limits/open_files", "--open-files", &args.open_files),
        }
    }

    fn layers(&mut self, layers: &[String]) -> Vec<LayerDraft> {
        for (index, layer) in layers.iter().enumerate() {
            let flag = format!("--layer {}", shortened(layer));
            self.places.insert(format!("/layers/{index}"), flag);
        }
        layers
            .iter()
            .map(|layer| LayerDraft::new(layer.clone(), self.cwd))
            .collect()
    }

    fn grants(&mut self, grants: &[String]) -> Vec<Located> {
        for (index, grant) in grants.iter().enumerate() {
            let flag = format!("--grant {}", shortened(grant));
            self.places.insert(format!("/grants/{index}"), flag);
        }
        grants
            .iter()
            .map(|grant| Located::new(grant.clone(), self.cwd))
            .collect()
    }

    fn passed(&mut self, names: &[String]) -> Vec<String> {
        for (index, name) in names.iter().enumerate() {
            let flag = format!("--pass-env {}", shortened(name));
            self.places.insert(format!("/pass_env/{index}"), flag);
        }
        names.to_vec()
    }

    fn labels(&mut self, labels: &[String]) -> BTreeMap<String, String> {
        self.pairs("/labels", "--label", labels, |label| {
            let message = format!("the label `{label}` has no value");
            let hint = format!("write --label {label}=VALUE");
            (DiagnosticCode::LabelForm, message, hint)
        })
    }

    fn variables(&mut self, variables: &[String]) -> BTreeMap<String, String> {
        self.pairs("/env", "--env", variables, |name| {
            let message = format!("the variable `{name}` has no value");
            let hint = format!("write --env {name}=VALUE, or --pass-env {name} to pass yours on");
            (DiagnosticCode::VariableForm, message, hint)
        })
    }

    /// Splits `NAME=VALUE` at the first `=`. `complain` says what is wrong where there is none.
    fn pairs(
        &mut self,
        field: &str,
        flag: &str,
        pairs: &[String],
        complain: impl Fn(&str) -> (DiagnosticCode, String, String),
    ) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for pair in pairs {
            let name = pair.split('=').next().unwrap_or_default();
            let place = pointer(field, name);
            self.places
                .insert(&place, format!("{flag} {}", shortened(name)));
            if let Some((name, value)) = pair.split_once('=') {
                map.insert(name.to_owned(), value.to_owned());
            } else {
                let (code, message, hint) = complain(&shortened(pair));
                self.found
                    .push(Diagnostic::error(code, place, message).with_hint(hint));
            }
        }
        map
    }
}

/// A value as a message shows it: escaped, and cut where it is long.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut short: String = text
        .chars()
        .take(CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn draft(line: &[&str]) -> (Draft, FlagPlaces) {
        let cli = Cli::try_parse_from(["tidemill", "run"].iter().chain(line));
        match cli.expect("the line is good").command {
            Command::Run(args) => draft_of(&args.job, "/cwd"),
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn values_end_where_they_end() {
        let (draft, places) = draft(&["--env", "A=b=c\nd", "--env", "E=", "--label", "k=v=w", "x"]);
        assert_eq!(
            (draft.env["A"].as_str(), draft.env["E"].as_str()),
            ("b=c\nd", "")
        );
        assert_eq!(draft.labels["k"], "v=w");
        assert!(draft.found.is_empty());
        assert_eq!(places.flag_of("/env/A"), Some("--env A"));
    }

    #[test]
    fn every_flag_says_where_it_was_written() {
        let (draft, places) = draft(&[
            "--image",
            "none",
            "--layer",
            "dir:a",
            "--workspace",
            "w",
            "--write",
            "--workdir",
            "d",
            "--pass-env",
            "P",
            "--net",
            "host",
            "--grant",
            "bind:a:/b",
            "--memory",
            "1",
            "--cpus",
            "1",
            "--pids",
            "1",
            "--disk",
            "1",
            "--shm",
            "1",
            "--open-files",
            "1",
            "--stop-signal",
            "INT",
            "--timeout",
            "1",
            "--grace",
            "1",
            "--log-limit",
            "1",
            "--user",
            "1",
            "--stdin",
            "--tty",
            "--name",
            "n",
            "--env",
            "bad",
            "x",
            "y",
        ]);
        for (place, flag) in [
            ("/image", "--image"),
            ("/layers/0", "--layer dir:a"),
            ("/workspace", "--workspace"),
            ("/write", "--write"),
            ("/workdir", "--workdir"),
            ("/pass_env/0", "--pass-env P"),
            ("/network", "--net"),
            ("/grants/0", "--grant bind:a:/b"),
            ("/limits/memory", "--memory"),
            ("/limits/shm", "--shm"),
            ("/limits/open_files", "--open-files"),
            ("/stop_signal", "--stop-signal"),
            ("/limits/log", "--log-limit"),
            ("/user", "--user"),
            ("/stdin", "--stdin"),
            ("/tty", "--tty"),
            ("/name", "--name"),
            ("/env/bad", "--env bad"),
            ("/program", "PROGRAM"),
            ("/args/0", "ARGS"),
        ] {
            assert_eq!(places.flag_of(place), Some(flag), "{place}");
        }
        assert_eq!(draft.found.len(), 1, "a variable without a value");
        assert_eq!(draft.layers[0].base, "/cwd");
        assert_eq!(draft.limits.log.as_deref(), Some("1"));
    }
}
