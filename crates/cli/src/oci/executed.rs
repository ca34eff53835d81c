//! Which programs this machine executes: its own, those of its processor's elder sister, and those that an
//! emulator is registered for. <https://docs.kernel.org/admin-guide/binfmt-misc.html>

use std::fs;
use std::path::Path;

use tidemill_oci::Platform;

/// Where the kernel lists what is executed by interpreters.
const REGISTERED: &str = "/proc/sys/fs/binfmt_misc";

/// True if programs for a platform can be executed here.
pub(super) fn can_execute(platform: &Platform) -> bool {
    is_own(&Platform::host(), platform) || has_emulator(Path::new(REGISTERED), platform)
}

fn is_own(host: &Platform, platform: &Platform) -> bool {
    let is_sister = matches!(
        (host.architecture.as_str(), platform.architecture.as_str()),
        ("amd64", "386") | ("arm64", "arm")
    );
    // Which version of an architecture the processor is, is seen when a program runs.
    host.os == platform.os && (is_sister || host.architecture == platform.architecture)
}

/// True if QEMU is registered for the architecture, under the name that it registers itself by.
fn has_emulator(registered: &Path, platform: &Platform) -> bool {
    let emulated = match platform.architecture.as_str() {
        "amd64" => "x86_64",
        "386" => "i386",
        "arm64" => "aarch64",
        "loong64" => "loongarch64",
        "mips64le" => "mips64el",
        "mipsle" => "mipsel",
        other => other,
    };
    platform.os == "linux"
        && fs::read_to_string(registered.join(format!("qemu-{emulated}")))
            .is_ok_and(|text| text.starts_with("enabled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_executes_its_own_and_its_elder_sisters() {
        for (host, platform, expected) in [
            ("linux/amd64", "linux/amd64", true),
            ("linux/amd64", "linux/amd64/v3", true),
            ("linux/amd64", "linux/386", true),
            ("linux/386", "linux/amd64", false),
            ("linux/arm64", "linux/arm/v7", true),
            ("linux/amd64", "linux/arm64", false),
            ("linux/amd64", "windows/amd64", false),
        ] {
            let parse = |text: &str| text.parse::<Platform>().expect("a platform");
            let found = is_own(&parse(host), &parse(platform));
            assert_eq!(found, expected, "{platform} on {host}");
        }
    }

    #[test]
    fn an_emulator_counts_while_it_is_enabled() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("qemu-aarch64");
        let arm = Platform::new("linux", "arm64", None);
        assert!(!has_emulator(directory.path(), &arm));
        fs::write(&file, "enabled\ninterpreter /usr/bin/qemu-aarch64\n").expect("it is ours");
        assert!(has_emulator(directory.path(), &arm));
        assert!(!has_emulator(
            directory.path(),
            &Platform::new("windows", "arm64", None)
        ));
        fs::write(&file, "disabled\n").expect("it is ours");
        assert!(!has_emulator(directory.path(), &arm));
    }
}
