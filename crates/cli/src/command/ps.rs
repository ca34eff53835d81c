//! `tidemill ps`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;
use serde::Serialize;
use tidemill_core::diagnostic::nearest;
use tidemill_core::{ExecutionId, State};
use tidemill_hub::{Hub, adapter};
use tidemill_ledger::{ListFilter, Snapshot};
use tidemill_store::ListCursor;

use crate::args::{Format, PsArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::session::{failed, find, newest};
use crate::text::table::{short_id, table};
use crate::ui::Ui;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct List<'a> {
    version: u32,
    executions: &'a [Snapshot],
    /// True if there are more that match.
    more: bool,
    /// What `--after` takes for the next ones, if there are more.
    next: Option<ExecutionId>,
}

pub(crate) async fn ps(
    hub: &Hub,
    args: &PsArgs,
    format: Format,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let filter = filter_of(args)?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let after = match &args.after {
        Some(text) => Some(place_of(hub, text, ui).await?),
        None => None,
    };
    let (executions, more) = newest(hub, &filter, limit, after).await?;
    let last = executions.last().filter(|_| more);
    let answer = List {
        version: 1,
        executions: &executions,
        more,
        next: last.map(|last| last.id),
    };
    output.answer(format, &answer, || {
        table(&executions, adapter::now(), terminal_width())
    })?;
    if format == Format::Text {
        if let Some(last) = last {
            ui.note(&format!(
                "there are more: --after {} lists the next ones",
                short_id(last)
            ));
        } else if executions.is_empty() {
            ui.note(nothing(args));
        }
    }
    Ok(0)
}

/// Why the list is empty.
const fn nothing(args: &PsArgs) -> &'static str {
    let is_filtered = !args.state.is_empty() || args.name.is_some() || !args.labels.is_empty();
    match (is_filtered, &args.after) {
        (true, _) => "no execution matches",
        (false, Some(_)) => "there is no older execution",
        (false, None) => "nothing has run yet; for example: tidemill run -- true",
    }
}

/// The place in the list right after one execution.
async fn place_of(hub: &Hub, text: &str, ui: &Ui) -> Result<ListCursor, Failure> {
    let id = find(hub, text, ui).await?;
    let snapshot = hub.snapshot(id).await.map_err(failed)?;
    Ok(ListCursor {
        created_at: snapshot.created_at,
        id,
    })
}

/// Reads what the flags ask for. Separate from the flags themselves, so that a wrong state is
/// answered with the nearest right one.
fn filter_of(args: &PsArgs) -> Result<ListFilter, Failure> {
    let mut states = Vec::new();
    for name in &args.state {
        let state = State::from_name(&name.replace(['-', ' '], "_").to_lowercase());
        states.push(state.ok_or_else(|| unknown_state(name))?);
    }
    let mut labels = BTreeMap::new();
    for label in &args.labels {
        let (key, value) = label.split_once('=').ok_or_else(|| {
            let message = format!("`{}` is not a label", label.escape_debug());
            Failure::new(FailureKind::Usage, message).hint("write --label KEY=VALUE")
        })?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(ListFilter {
        states,
        name: args.name.clone(),
        labels,
        ..ListFilter::default()
    })
}

fn unknown_state(name: &str) -> Failure {
    let names = State::ALL.map(State::as_str);
    let message = format!("there is no state `{}`", name.escape_debug());
    let failure = Failure::new(FailureKind::Usage, message);
    match nearest(name, names) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!("the states are {}", names.join(", "))),
    }
}

fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    tcgetwinsize(&stdout)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn args(state: &[&str], labels: &[&str]) -> PsArgs {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        PsArgs {
            state: owned(state),
            name: None,
            labels: owned(labels),
            after: None,
            limit: 20,
        }
    }

    #[test]
    fn filters_are_read_and_slips_are_answered() {
        let filter = filter_of(&args(&["running", "timed-out"], &["a=b=c"])).unwrap();
        assert_eq!(filter.states, [State::Running, State::TimedOut]);
        assert_eq!(filter.labels["a"], "b=c");
        let failure = filter_of(&args(&["runing"], &[])).unwrap_err();
        assert_eq!(failure.hints, ["did you mean `running`?"]);
        assert!(filter_of(&args(&[], &["a"])).is_err());
    }

    #[test]
    fn an_empty_list_says_why() {
        assert!(nothing(&args(&[], &[])).starts_with("nothing has run yet"));
        assert_eq!(nothing(&args(&["failed"], &[])), "no execution matches");
        assert_eq!(nothing(&args(&[], &["a=b"])), "no execution matches");
        let older = PsArgs {
            after: Some("last".to_owned()),
            ..args(&[], &[])
        };
        assert_eq!(nothing(&older), "there is no older execution");
    }
}
