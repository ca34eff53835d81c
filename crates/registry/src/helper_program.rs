//! Programs that keep credentials: `docker-credential-NAME get`, as docker runs them.
//! <https://github.com/docker/docker-credential-helpers#development>

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::credentials::{CredentialsError, Login};
use crate::secret::Secret;

/// How long a helper may take. It may ask its user for a password.
const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Bytes of what a failed helper says that are shown.
const SHOWN_BYTES_MAX: usize = 300;
/// How helpers say that they know nothing of a registry.
const NOT_FOUND: &str = "credentials not found";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: Secret,
}

/// Asks a helper for a sign-in; `None` if it has none.
///
/// Cancel safe: the program is killed.
pub(crate) async fn ask(helper: &str, registry: &str) -> Result<Option<Login>, CredentialsError> {
    let program = format!("docker-credential-{helper}");
    let failed = |problem: String| CredentialsError::Helper {
        program: program.clone(),
        registry: registry.to_owned(),
        problem,
    };
    let is_name = (helper.bytes()).all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !is_name {
        return Err(failed("this is not the name of a helper".to_owned()));
    }
    let run = run(&program, registry);
    let (is_success, output) = match timeout(DEADLINE, run).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed(format!("no answer in {} s", DEADLINE.as_secs()))),
    };
    if !is_success {
        let said = String::from_utf8_lossy(&output);
        let said = said.trim();
        if said.to_lowercase().contains(NOT_FOUND) {
            return Ok(None);
        }
        let shown: String = said.chars().take(SHOWN_BYTES_MAX).collect();
        return Err(failed(shown.escape_debug().to_string()));
    }
    // What it wrote may be a secret, so it is not shown.
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| failed("its answer cannot be read".to_owned()))?;
    if answer.username.is_empty() && answer.secret.reveal().is_empty() {
        return Ok(None);
    }
    Ok(Some(Login::of(&answer.username, answer.secret)))
}

/// Whether it ended well, and what it wrote.
async fn run(program: &str, registry: &str) -> std::io::Result<(bool, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read has its answer already.
        stdin.write_all(registry.as_bytes()).await.ok();
    }
    let output = match child.stdout.take() {
        Some(stdout) => read_bounded(stdout).await?,
        None => Vec::new(),
    };
    let status = child.wait().await?;
    Ok((status.success(), output))
}

async fn read_bounded(stream: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut output)
        .await?;
    Ok(output)
}
