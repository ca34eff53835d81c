//! Commands whose output becomes a layer, run in a sandbox of their own.

mod watch;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidemill_core::job::Network;
use tidemill_core::layer::COMMAND_OUTPUT;
use tidemill_core::{Digest, JobSpec, LogTotals, Millis, Reason, ReasonCode};
use tidemill_image::{OutputLimit, Planned};
use tidemill_sandbox::{Next, SandboxRequest, StartError, Stdio};

use self::watch::Watch;
use crate::attempt::host_memory;
use crate::attempt::outcome::judge;
use crate::attempt::stop::StopNote;
use crate::sandboxes::{Output, Sandboxes};

/// How long the command of a layer may run.
pub const LAYER_COMMAND_TIME_MAX: Duration = Duration::from_secs(3600);
/// Bytes of what it wrote last that are told when it fails.
const TOLD_BYTES: usize = 2000;

/// How often it is looked whether a command that writes nothing is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where commands of layers run.
#[derive(Clone)]
pub(crate) struct LayerCommands {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    /// Where private layers that do not fit into memory go.
    pub(crate) scratch: PathBuf,
}

impl LayerCommands {
    /// Runs a command to its end. Nothing of it is left then but what it put into its output. Blocks.
    pub(crate) fn run(
        &self,
        name: &Digest,
        spec: &JobSpec,
        planned: &Planned,
    ) -> Result<(), Reason> {
        let name = format!("layer-{}-{}", &name.to_hex()[..16], std::process::id());
        let scratch = self.scratch.join(&name);
        let ended = self.run_in(name, &scratch, spec, planned);
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %scratch.display(), %error, "a private layer stays");
            }
            _ => {}
        }
        ended
    }

    fn run_in(
        &self,
        name: String,
        scratch: &Path,
        spec: &JobSpec,
        planned: &Planned,
    ) -> Result<(), Reason> {
        let failed = |what: &str, error: &io::Error| {
            let message = format!("failed to {what} for the command of a layer: {error}");
            Reason::new(ReasonCode::Sandbox, message)
        };
        fs::create_dir_all(scratch).map_err(|error| failed("make a directory", &error))?;
        let mut limits = spec.limits;
        limits.timeout = Some(Millis::from(LAYER_COMMAND_TIME_MAX));
        let request = SandboxRequest {
            name,
            root: planned.root.clone(),
            program: spec.program.clone(),
            args: spec.args.clone(),
            env: planned.env.clone(),
            workdir: planned.workdir.clone(),
            network: Network::None,
            limits,
            tty: false,
            wait_children: false,
            scratch: Some(scratch.to_owned()),
            measured: true,
        };
        let (output, stdout, stderr) = self
            .sandboxes
            .output()
            .map_err(|error| failed("make pipes", &error))?;
        let stdin = OpenOptions::new().read(true).open("/dev/null");
        let stdin = stdin.map_err(|error| failed("open /dev/null", &error))?;
        let stdio = Stdio {
            stdin: stdin.into(),
            stdout,
            stderr,
        };
        let running = self
            .sandboxes
            .spawn(&request, stdio)
            .map_err(|error| of_command(spec, error.reason()))?;
        let bound = OutputLimit::of(&spec.limits);
        let watch = Watch::start(output_of(planned), bound, running.killing())
            .map_err(|error| failed("watch the output", &error))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let reading = thread::Builder::new()
            .name("layer-output".to_owned())
            .spawn({
                let is_over = Arc::clone(&is_over);
                move || tail(output, &is_over)
            })
            .map_err(|error| failed("start a thread", &error))?;
        let waited = running.wait();
        let outgrown = watch.end(&bound);
        is_over.store(true, Ordering::Release);
        let told = reading.join().unwrap_or_default();
        let ended = waited.map_err(|error: StartError| of_command(spec, error.reason()))?;
        let verdict = judge(
            &ended,
            &limits,
            LogTotals::default(),
            StopNote::default(),
            host_memory(),
        );
        let judged = verdict.completion.reason;
        let judged = judged.map(|reason| for_a_layer(reason, ended.network_missed));
        let Some(mut reason) = outgrown.or(judged) else {
            return Ok(());
        };
        if !told.trim().is_empty() {
            reason.message = format!("{}; it wrote: {}", reason.message, told.trim());
        }
        Err(of_command(spec, reason))
    }
}

/// What a command that failed may have failed for. A network would make its output another each time.
const NO_NETWORK: &str = "it looked for a network, and the command of a layer never has one: fetch what it needs \
                          before, and lay it under it with an earlier layer, such as file:SRC=DEST";

/// The reason as it is for a command that cannot be given a network.
fn for_a_layer(reason: Reason, network_missed: bool) -> Reason {
    if network_missed && matches!(reason.code, ReasonCode::Exit | ReasonCode::Signal) {
        return reason.with_hint(NO_NETWORK);
    }
    reason
}

/// The directory on the host that a command leaves its output in.
fn output_of(planned: &Planned) -> &Path {
    let mounts = &planned.root.mounts;
    let output = mounts.iter().find(|mount| mount.dest == COMMAND_OUTPUT);
    Path::new(&output.expect("the plan of a command has it").source)
}

/// The reason with the command that it is about.
fn of_command(spec: &JobSpec, mut reason: Reason) -> Reason {
    let command = spec.command().join(" ");
    reason.message = format!("the layer's command `{command}` failed: {}", reason.message);
    reason
}

/// Reads an output to its end, and gives back the last of it.
fn tail(mut output: Box<dyn Output>, is_over: &AtomicBool) -> String {
    let mut last: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match output.next(&mut buffer, Some(LOOK_EVERY)) {
            Ok(Next::Piece { length, .. }) => {
                last.extend_from_slice(&buffer[..length]);
                let surplus = last.len().saturating_sub(TOLD_BYTES);
                last.drain(..surplus);
            }
            // Somebody outside may hold the pipe open.
            Ok(Next::TimedOut) if is_over.load(Ordering::Acquire) => break,
            Ok(Next::TimedOut) => {}
            Ok(Next::Closed) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&last).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_give_a_layers_command_a_network() {
        let hint = |code, missed| {
            let reason =
                Reason::new(code, "it failed").with_hint("--net host gives it this machine's");
            for_a_layer(reason, missed).hint.unwrap_or_default()
        };
        assert!(hint(ReasonCode::Exit, true).contains("file:SRC=DEST"));
        assert!(!hint(ReasonCode::Exit, true).contains("--net"));
        assert!(hint(ReasonCode::Memory, true).contains("--net host gives"));
        assert!(hint(ReasonCode::Exit, false).contains("--net host gives"));
    }
}
