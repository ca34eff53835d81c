//! Program, arguments and environment: what execve(2) can pass on, and what a name may look like.
//!
//! Linux takes at most 131,072 bytes for one argument or `NAME=VALUE`, its NUL counted, and for all
//! of them together a quarter of the stack limit: 2 MiB with the 8 MiB that a job gets. Each also
//! costs one pointer. A job that would fail there is refused here, with the name of what is too big.

use std::collections::BTreeSet;

use super::source::PATH_BYTES_MAX;
use super::{CallerVariable, Findings, Surroundings, shown};
use crate::diagnostic::{DiagnosticCode, pointer};
use crate::draft::Draft;
use crate::job::{Entrypoint, Image};
use crate::limits::ARGUMENT_BYTES_MAX;

/// Bytes of all arguments and variables together: a quarter of an 8 MiB stack, less what the sandbox
/// adds by itself (variables, the path of the program, the line of an interpreter).
pub const ARGUMENTS_TOTAL_MAX: usize = (2 << 20) - ARGUMENTS_RESERVE;
/// What the sandbox's own variables and the kernel's own entries take at most.
const ARGUMENTS_RESERVE: usize = 16 << 10;
/// One pointer on the new program's stack.
const POINTER_BYTES: usize = 8;

const AS_FILE: &str = "put it into a file and give the job that file as a layer: `file:SRC=DEST`";

/// What a job runs, as its spec has it.
pub(super) struct Command {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) entrypoint: Entrypoint,
}

/// Joins an entry point that the draft names with what follows it. Without one, an OCI image's own goes
/// before program and arguments, and then neither has to be named.
pub(super) fn check_command(draft: &Draft, image: &Image, findings: &mut Findings) -> Command {
    let of_image = draft.entrypoint.is_none() && matches!(image, Image::Oci { .. });
    let named = draft.entrypoint.iter().flatten();
    for (index, text) in named.clone().enumerate() {
        let place = format!("/entrypoint/{index}");
        check_argument(&place, "the entry point", text, findings);
    }
    match draft.entrypoint.as_deref() {
        Some([first, ..]) if first.is_empty() => {
            findings
                .error(
                    DiagnosticCode::Empty,
                    "/entrypoint",
                    "the entry point's program is an empty text",
                )
                .hint("name a program, or leave the list empty for no entry point");
        }
        Some([_, ..]) if draft.program.is_none() => {}
        _ if of_image && draft.program.is_none() => {}
        _ => check_program(draft, findings),
    }
    let mut words = named.chain(&draft.program).chain(&draft.args).cloned();
    // Arguments without a program are the image's entry point's.
    let program = if of_image && draft.program.is_none() {
        String::new()
    } else {
        words.next().unwrap_or_default()
    };
    Command {
        program,
        args: words.collect(),
        entrypoint: if of_image {
            Entrypoint::Image
        } else {
            Entrypoint::None
        },
    }
}

fn check_program(draft: &Draft, findings: &mut Findings) {
    match draft.program.as_deref() {
        None => findings
            .error(
                DiagnosticCode::MissingField,
                "/program",
                "there is no program to run",
            )
            .hint("name one, for example `cargo` with the argument `test`"),
        Some("") => findings
            .error(
                DiagnosticCode::Empty,
                "/program",
                "the program is an empty text",
            )
            .hint("name a program, for example `cargo`, or write its path in the sandbox"),
        Some(text) if text.len() > PATH_BYTES_MAX => {
            let message = format!(
                "the program's name has {} bytes, and a path has at most {PATH_BYTES_MAX}",
                text.len()
            );
            findings
                .error(DiagnosticCode::TooLong, "/program", message)
                .hint("a program is a name or a path; a script goes to a shell: `sh -c SCRIPT`");
        }
        Some(text) => {
            findings.without_nul("/program", "the program's name", text);
        }
    }
}

pub(super) fn check_arguments(draft: &Draft, findings: &mut Findings) {
    for (index, argument) in draft.args.iter().enumerate() {
        let place = format!("/args/{index}");
        let what = format!("argument {}", index + 1);
        check_argument(&place, &what, argument, findings);
    }
}

pub(super) fn check_argument(place: &str, what: &str, argument: &str, findings: &mut Findings) {
    if findings.without_nul(place, what, argument) && argument.len() > ARGUMENT_BYTES_MAX {
        let message = format!(
            "{what} has {} bytes, and {ARGUMENT_BYTES_MAX} is the kernel's limit for one",
            argument.len()
        );
        findings
            .error(DiagnosticCode::ArgumentTooLong, place, message)
            .hint(AS_FILE);
    }
}

pub(super) fn check_environment(
    draft: &Draft,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) {
    for (name, value) in &draft.env {
        let place = pointer("/env", name);
        if !check_variable_name(&place, name, findings) {
            continue;
        }
        let what = format!("the value of variable `{}`", shown(name));
        if findings.without_nul(&place, &what, value) {
            check_variable_size(&place, name, value.len(), findings);
        }
    }
    for (index, name) in draft.pass_env.iter().enumerate() {
        let place = format!("/pass_env/{index}");
        if !check_variable_name(&place, name, findings) {
            continue;
        }
        if draft.env.contains_key(name) {
            let message = format!("variable `{}` is both set and passed on", shown(name));
            findings
                .warning(DiagnosticCode::Redundant, place, message)
                .hint("the value that is set counts; leave one of the two out");
            continue;
        }
        match (surroundings.caller_variable)(name) {
            CallerVariable::Set { bytes } => check_variable_size(&place, name, bytes, findings),
            CallerVariable::Unset => {
                let message = format!(
                    "variable `{}` is not set here, so none is passed on",
                    shown(name)
                );
                findings
                    .warning(DiagnosticCode::VariableNotSet, place, message)
                    .hint("set it, or give the job a value with NAME=VALUE");
            }
            CallerVariable::NotUtf8 => {
                let message = format!("the value of variable `{}` is not UTF-8", shown(name));
                findings
                    .error(DiagnosticCode::NotUtf8, place, message)
                    .hint(AS_FILE);
            }
        }
    }
}

pub(super) fn check_variable_name(place: &str, name: &str, findings: &mut Findings) -> bool {
    if name.is_empty() {
        findings
            .error(
                DiagnosticCode::VariableName,
                place,
                "a variable has an empty name",
            )
            .hint("write NAME=VALUE");
        return false;
    }
    if name.contains('=') {
        let message = format!(
            "`{}` is not a variable's name: it has a `=` in it",
            shown(name)
        );
        findings
            .error(DiagnosticCode::VariableName, place, message)
            .hint("the name ends before the first `=`; what follows it is the value");
        return false;
    }
    findings.without_nul(place, "a variable's name", name)
}

fn check_variable_size(place: &str, name: &str, value_bytes: usize, findings: &mut Findings) {
    let bytes = name.len() + 1 + value_bytes;
    if bytes > ARGUMENT_BYTES_MAX {
        let message = format!(
            "variable `{}` has {bytes} bytes with its name, and {ARGUMENT_BYTES_MAX} is the \
             kernel's limit for one",
            shown(name)
        );
        findings
            .error(DiagnosticCode::VariableTooLong, place, message)
            .hint(AS_FILE);
    }
}

/// Refuses what passes one by one and not together. What is too long by itself was already reported,
/// so it is not counted again.
pub(super) fn check_total(draft: &Draft, surroundings: &Surroundings<'_>, findings: &mut Findings) {
    let cost = |bytes: usize| {
        if bytes > ARGUMENT_BYTES_MAX {
            0
        } else {
            bytes + 1 + POINTER_BYTES
        }
    };
    let arguments: usize = draft
        .entrypoint
        .iter()
        .flatten()
        .chain(&draft.program)
        .chain(&draft.args)
        .map(|text| cost(text.len()))
        .sum();
    let set: usize = draft
        .env
        .iter()
        .map(|(name, value)| cost(name.len() + 1 + value.len()))
        .sum();
    let passed: usize = passed_names(draft)
        .iter()
        .map(|name| match (surroundings.caller_variable)(name) {
            CallerVariable::Set { bytes } => cost(name.len() + 1 + bytes),
            CallerVariable::Unset | CallerVariable::NotUtf8 => 0,
        })
        .sum();
    let variables = set + passed;
    let total = arguments + variables;
    if total > ARGUMENTS_TOTAL_MAX {
        let place = if arguments >= variables {
            "/args"
        } else {
            "/env"
        };
        let message = format!(
            "arguments ({arguments} bytes) and variables ({variables} bytes) are {total} bytes \
             together, and {ARGUMENTS_TOTAL_MAX} is the limit"
        );
        findings.error(DiagnosticCode::ArgumentsTooLarge, place, message).hint(
            "put the list into a file and give the job that file as a layer: `file:SRC=DEST`; many \
             programs read arguments from one, as in `cc @args.txt` or `xargs -a`",
        );
    }
}

/// The names that are really passed on: sorted, each once, and none that is set anyway.
pub(super) fn passed_names(draft: &Draft) -> Vec<String> {
    let names: BTreeSet<&String> = draft.pass_env.iter().collect();
    names
        .into_iter()
        .filter(|name| !draft.env.contains_key(*name))
        .cloned()
        .collect()
}
