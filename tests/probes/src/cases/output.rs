//! Output without end, in pieces of every kind: the log's half of hostile case 41. A job may write as
//! much as it likes; what is judged is what the host keeps of it.

use std::env;
use std::io::{self, Write};

use crate::sys::{self, call};
use crate::verdict::Verdict;

const MIB: usize = 1 << 20;

fn told(name: &str, otherwise: usize) -> usize {
    let told = env::var(name).ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Says what was written, or why it was no more.
fn written(what: &str, result: io::Result<()>) -> Verdict {
    match result {
        Ok(()) => Verdict::Safe(format!("{what} written; who keeps it is judged")),
        Err(error) => Verdict::Absent(format!("{what} not written: {error}")),
    }
}

/// Lines as fast as they are taken.
pub(crate) fn output_flood() -> Verdict {
    let mebibytes = told("PROBE_MIB", 1024);
    let block = b"y\n".repeat(MIB / 2);
    let mut out = io::stdout().lock();
    let result = (0..mebibytes).try_for_each(|_| out.write_all(&block));
    written(&format!("{mebibytes} MiB"), result)
}

/// One byte at a time, to both streams in turn.
pub(crate) fn output_drops() -> Verdict {
    let bytes = told("PROBE_BOUND", 400_000);
    let result = (0..bytes).try_for_each(|number| {
        let stream = 1 + number % 2;
        call!(libc::SYS_write, stream, b".", 1).map(drop)
    });
    let last = call!(libc::SYS_write, 1, b"\n", 1).map(drop);
    written(&format!("{bytes} bytes one by one"), result.and(last))
}

/// Bytes that are no text: every value, in every order of two, without a line's end for long.
pub(crate) fn output_noise() -> Verdict {
    let mebibytes = told("PROBE_MIB", 16);
    let mut block = Vec::with_capacity(MIB);
    for step in 1_u32..9 {
        for number in 0..u32::try_from(MIB / 8).unwrap_or(0) {
            let value = number.wrapping_mul(step).wrapping_mul(0x9e37_79b9) >> 24;
            block.push(value.to_le_bytes()[0]);
        }
    }
    let mut out = io::stdout().lock();
    let result = (0..mebibytes)
        .try_for_each(|_| out.write_all(&block))
        .and_then(|()| out.write_all(b"\n"));
    written(&format!("{mebibytes} MiB of noise"), result)
}

/// Closes its output, and leaves somebody behind who has a copy of it and goes on to write.
pub(crate) fn output_after_close() -> Verdict {
    const COPY: i32 = 9;
    let verdict = written("the last line before the close", Ok(()));
    // Said before, since nothing can be said after it.
    drop(writeln!(io::stdout(), "{verdict}"));
    let result = (|| -> io::Result<()> {
        call!(libc::SYS_dup2, 1, COPY)?;
        for stream in 0..3 {
            call!(libc::SYS_close, stream)?;
        }
        if sys::fork()? == 0 {
            sys::ignore(libc::SIGPIPE);
            let line = b"after the close\n";
            while call!(libc::SYS_write, COPY, line, 16).is_ok() {}
            sys::exit_now(0);
        }
        Ok(())
    })();
    sys::exit_now(i32::from(result.is_err()))
}
