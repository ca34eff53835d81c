//! The flags of a job as a draft, with the flag that each part came from.

use tidemill_core::diagnostic::pointer;
use tidemill_core::draft::{Draft, LimitsDraft, Located};
use tidemill_core::{Diagnostic, DiagnosticCode};

use crate::args::JobArgs;
use crate::diagnostics::FlagPlaces;

/// Reads the flags. Relative paths start from `cwd`.
pub(crate) fn draft_of(args: &JobArgs, cwd: &str) -> (Draft, FlagPlaces) {
    let mut places = FlagPlaces::default();
    let mut found = Vec::new();
    let mut labels = std::collections::BTreeMap::new();
    for label in &args.labels {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let place = pointer("/labels", key);
        places.insert(&place, format!("--label {}", shortened(key)));
        if label.contains('=') {
            labels.insert(key.to_owned(), value.to_owned());
        } else {
            found.push(
                Diagnostic::error(
                    DiagnosticCode::LabelForm,
                    place,
                    format!("the label `{}` has no value", shortened(label)),
                )
                .with_hint(format!("write --label {}=VALUE", shortened(label))),
            );
        }
    }
    let mut env = std::collections::BTreeMap::new();
    for variable in &args.env {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        let place = pointer("/env", name);
        places.insert(&place, format!("--env {}", shortened(name)));
        if variable.contains('=') {
            env.insert(name.to_owned(), value.to_owned());
        } else {
            found.push(
                Diagnostic::error(
                    DiagnosticCode::VariableForm,
                    place,
                    format!("the variable `{}` has no value", shortened(name)),
                )
                .with_hint(format!(
                    "write --env {0}=VALUE, or --pass-env {0} to pass yours on",
                    shortened(name)
                )),
            );
        }
    }
    let layers = located_list(&args.layers, cwd, "/layers", "--layer", &mut places);
    for (index, name) in args.pass_env.iter().enumerate() {
        places.insert(
            format!("/pass_env/{index}"),
            format!("--pass-env {}", shortened(name)),
        );
    }
    let (program, arguments) = match args.command.split_first() {
        Some((program, arguments)) => (Some(program.clone()), arguments.to_vec()),
        None => (None, Vec::new()),
    };
    if program.is_some() {
        places.insert("/program", "PROGRAM");
        places.insert("/args", "ARGS");
    }
    let mut text = |place: &str, flag: &str, value: &Option<String>| {
        if value.is_some() {
            places.insert(place, flag);
        }
        value.clone()
    };
    let located = |value: Option<String>| value.map(|text| Located::new(text, cwd));
    let draft = Draft {
        name: text("/name", "--name", &args.name),
        labels,
        program,
        args: arguments,
        image: located(text("/image", "--image", &args.image)),
        layers,
        workspace: located(text("/workspace", "--workspace", &args.workspace)),
        no_workspace: args.no_workspace,
        write: args.write,
        workdir: text("/workdir", "--workdir", &args.workdir),
        env,
        pass_env: args.pass_env.clone(),
        network: text("/network", "--net", &args.net),
        limits: LimitsDraft {
            memory: text("/limits/memory", "--memory", &args.memory),
            cpus: text("/limits/cpus", "--cpus", &args.cpus),
            pids: text("/limits/pids", "--pids", &args.pids),
            disk: text("/limits/disk", "--disk", &args.disk),
            timeout: text("/limits/timeout", "--timeout", &args.timeout),
            grace: text("/limits/grace", "--grace", &args.grace),
            log: text("/limits/log", "--log-limit", &args.log_limit),
            open_files: None,
        },
        user: text("/user", "--user", &args.user),
        stdin: args.stdin.then(|| "inherit".to_owned()),
        tty: args.tty,
        found,
        ..Draft::default()
    };
    for (given, place, flag) in [
        (args.no_workspace, "/no_workspace", "--no-workspace"),
        (args.write, "/write", "--write"),
        (args.stdin, "/stdin", "--stdin"),
        (args.tty, "/tty", "--tty"),
    ] {
        if given {
            places.insert(place, flag);
        }
    }
    (draft, places)
}

fn located_list(
    texts: &[String],
    cwd: &str,
    list: &str,
    flag: &str,
    places: &mut FlagPlaces,
) -> Vec<Located> {
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            places.insert(
                format!("{list}/{index}"),
                format!("{flag} {}", shortened(text)),
            );
            Located::new(text.clone(), cwd)
        })
        .collect()
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
