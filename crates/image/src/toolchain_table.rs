//! Where tools of people live, what of them a job needs, and which variables name them.

use tidemill_core::grant::PathAccess;

/// A tool that installs itself into a home directory.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// Its directory, relative to the home.
    pub(crate) root: &'static str,
    /// What of it is granted, relative to the root; all of it, read-only, if empty.
    pub(crate) parts: &'static [(&'static str, PathAccess)],
    /// Why it is granted.
    pub(crate) why: &'static str,
}

const fn whole(root: &'static str, why: &'static str) -> Toolchain {
    Toolchain {
        root,
        parts: &[],
        why,
    }
}

const fn parts(
    root: &'static str,
    parts: &'static [(&'static str, PathAccess)],
    why: &'static str,
) -> Toolchain {
    Toolchain { root, parts, why }
}

const READ: PathAccess = PathAccess::ReadOnly;
const COPY: PathAccess = PathAccess::CopyOnWrite;

/// The tools, each by the directory that a PATH entry or a link lies in. Where a tool keeps
/// settings with tokens beside its programs, only parts are granted.
pub(crate) const TOOLCHAINS: &[Toolchain] = &[
    // Granted part by part in code: its home has to be writable.
    whole(".cargo", "Rust's tools"),
    whole(".rustup", "Rust's compilers"),
    whole(".elan", "Lean's compilers"),
    whole(".pyenv", "Python's interpreters"),
    whole(".rye", "Python's interpreters"),
    parts(".poetry", &[("bin", READ), ("lib", READ)], "Python's tools"),
    parts(
        ".local/share/uv",
        &[("python", READ), ("tools", READ)],
        "Python's interpreters",
    ),
    whole(".local/share/pipx", "Python's tools"),
    whole(".local/pipx", "Python's tools"),
    whole(".local/share/pypoetry", "Python's tools"),
    whole(".local/share/virtualenvs", "Python's environments"),
    whole(".virtualenvs", "Python's environments"),
    parts(
        ".conda",
        &[("envs", READ), ("pkgs", READ)],
        "Conda's environments",
    ),
    whole("miniconda3", "Conda's environments"),
    whole("anaconda3", "Conda's environments"),
    whole("miniforge3", "Conda's environments"),
    whole("mambaforge", "Conda's environments"),
    whole("micromamba", "Conda's environments"),
    whole(".local/share/mamba", "Conda's environments"),
    parts(
        ".pixi",
        &[("bin", READ), ("envs", READ)],
        "Pixi's environments",
    ),
    whole(".nvm", "Node's interpreters"),
    whole(".fnm", "Node's interpreters"),
    whole(".local/share/fnm", "Node's interpreters"),
    whole(".nodenv", "Node's interpreters"),
    whole(".volta", "Node's interpreters"),
    whole(".n", "Node's interpreters"),
    parts(
        ".npm-global",
        &[("bin", READ), ("lib", READ)],
        "Node's tools",
    ),
    parts(
        ".npm-packages",
        &[("bin", READ), ("lib", READ)],
        "Node's tools",
    ),
    whole(".yarn/bin", "Node's tools"),
    whole(".local/share/pnpm", "Node's tools"),
    whole(".bun", "Bun's tools"),
    whole(".deno", "Deno's tools"),
    whole(".asdf", "tools of several languages"),
    whole(".local/share/mise", "tools of several languages"),
    whole(".local/share/rtx", "tools of several languages"),
    parts(
        ".proto",
        &[("bin", READ), ("shims", READ), ("tools", READ)],
        "tools of several languages",
    ),
    whole(".linuxbrew", "tools of several languages"),
    whole(".nix-profile", "the caller's profile"),
    parts(
        "go",
        &[("bin", READ), ("pkg/mod", COPY)],
        "Go's tools and downloaded modules",
    ),
    whole("sdk", "Go's compilers"),
    whole(".goenv", "Go's compilers"),
    whole(".gvm", "Go's compilers"),
    whole(".rbenv", "Ruby's interpreters"),
    whole(".rvm", "Ruby's interpreters"),
    whole(".rubies", "Ruby's interpreters"),
    parts(".gem", &[("ruby", READ)], "Ruby's packages"),
    parts(".local/share/gem", &[("ruby", READ)], "Ruby's packages"),
    whole(".sdkman", "Java's compilers"),
    whole(".jenv", "Java's compilers"),
    whole(".jabba", "Java's compilers"),
    whole(".jdks", "Java's compilers"),
    parts(".jbang", &[("bin", READ), ("cache", READ)], "Java's tools"),
    parts(".local/share/coursier", &[("bin", READ)], "Scala's tools"),
    whole(".juliaup", "Julia's compilers"),
    parts(
        ".julia",
        &[
            ("juliaup", READ),
            ("bin", READ),
            ("packages", COPY),
            ("artifacts", COPY),
            ("registries", COPY),
        ],
        "Julia's compilers and packages",
    ),
    whole(".ghcup", "Haskell's compilers"),
    parts(
        ".cabal",
        &[("bin", READ), ("packages", COPY), ("store", COPY)],
        "Haskell's tools and packages",
    ),
    parts(
        ".local/state/cabal",
        &[("store", COPY)],
        "Haskell's packages",
    ),
    parts(
        ".stack",
        &[("programs", READ), ("pantry", COPY), ("snapshots", COPY)],
        "Haskell's compilers",
    ),
    whole(".opam", "OCaml's compilers"),
    parts(
        ".dotnet",
        &[
            ("dotnet", READ),
            ("host", READ),
            ("sdk", READ),
            ("shared", READ),
            ("packs", READ),
            ("tools", READ),
            ("templates", READ),
            ("sdk-manifests", READ),
        ],
        ".NET's compilers",
    ),
    parts(
        ".foundry",
        &[("bin", READ), ("versions", READ)],
        "Ethereum's tools",
    ),
    whole(".svm", "Solidity's compilers"),
    whole(".phpenv", "PHP's interpreters"),
    parts(".composer", &[("vendor", READ)], "PHP's tools"),
    whole(".plenv", "Perl's interpreters"),
    whole("perl5", "Perl's packages"),
    whole(".luaenv", "Lua's interpreters"),
    parts(
        ".luarocks",
        &[("bin", READ), ("lib", READ), ("share", READ)],
        "Lua's packages",
    ),
    whole(".choosenim", "Nim's compilers"),
    parts(
        ".nimble",
        &[("bin", READ), ("pkgs", READ), ("pkgs2", READ)],
        "Nim's tools and packages",
    ),
    whole(".zvm", "Zig's compilers"),
    whole(".local/share/swiftly", "Swift's compilers"),
    whole(".swiftenv", "Swift's compilers"),
    parts(
        ".pub-cache",
        &[
            ("bin", READ),
            ("hosted", READ),
            ("git", READ),
            ("global_packages", READ),
        ],
        "Dart's tools and packages",
    ),
    whole("flutter", "Flutter's tools"),
    parts("Android/Sdk", &[], "Android's tools"),
    whole(".exenv", "Elixir's compilers"),
    whole(".kerl", "Erlang's compilers"),
    parts(
        ".mix",
        &[("escripts", READ), ("elixir", READ), ("archives", READ)],
        "Elixir's tools",
    ),
    whole(".roswell/bin", "Lisp's tools"),
    whole(".tfenv", "Terraform's versions"),
    whole(".tgenv", "Terragrunt's versions"),
    parts(
        ".krew",
        &[("bin", READ), ("store", READ)],
        "plug-ins of kubectl",
    ),
    whole(".fly/bin", "a program of PATH"),
    whole(".pulumi/bin", "a program of PATH"),
    whole(".wasmtime", "WebAssembly's tools"),
    parts(
        ".wasmer",
        &[("bin", READ), ("lib", READ), ("include", READ)],
        "WebAssembly's tools",
    ),
    whole(".moon/bin", "MoonBit's tools"),
    parts(
        ".local",
        &[("bin", READ), ("lib", READ)],
        "programs that the caller installed",
    ),
];

/// What a whole tool has beside its `bin`.
pub(crate) const MARKERS: &[&str] = &[
    "conda-meta",
    "pyvenv.cfg",
    "include/node",
    "lib/node_modules",
    "lib/rustlib",
    "lib/gcc",
    "lib/clang",
    "lib/ruby",
    "lib/erlang",
    "lib/modules",
    "lib/jvm.cfg",
    "jre/lib",
    "pkg/tool",
    "src/runtime/runtime.go",
    "lib/swift",
    "lib/dart-sdk",
    "bin/cache/dart-sdk",
    "lib/python3.9",
    "lib/python3.10",
    "lib/python3.11",
    "lib/python3.12",
    "lib/python3.13",
    "lib/python3.14",
    "lib/python3.15",
];

/// Downloads that let a build work without a network. All are packages that the tool checks by
/// digest or that the caller downloaded for building; none holds settings.
pub(crate) struct Cache {
    /// Its directory, relative to the home.
    pub(crate) path: &'static str,
    /// It is granted if one of these programs is on PATH.
    pub(crate) programs: &'static [&'static str],
    /// Why it is granted.
    pub(crate) why: &'static str,
}

/// The caches. Copy-on-write, because the tools take locks in them.
pub(crate) const CACHES: &[Cache] = &[
    Cache {
        path: "go/pkg/mod",
        programs: &["go"],
        why: "Go modules that are already downloaded",
    },
    Cache {
        path: ".npm/_cacache",
        programs: &["npm"],
        why: "packages that npm has already downloaded",
    },
    Cache {
        path: ".cache/uv",
        programs: &["uv"],
        why: "packages that uv has already downloaded",
    },
    Cache {
        path: ".m2/repository",
        programs: &["mvn", "gradle"],
        why: "artifacts that Maven has already downloaded",
    },
    Cache {
        path: ".m2/wrapper",
        programs: &["java"],
        why: "versions of Maven that are already downloaded",
    },
    Cache {
        path: ".gradle/caches",
        programs: &["gradle", "java"],
        why: "artifacts that Gradle has already downloaded",
    },
    Cache {
        path: ".gradle/wrapper",
        programs: &["gradle", "java"],
        why: "versions of Gradle that are already downloaded",
    },
    Cache {
        path: ".cache/coursier",
        programs: &["sbt", "scala", "cs"],
        why: "artifacts that Coursier has already downloaded",
    },
    Cache {
        path: ".nuget/packages",
        programs: &["dotnet"],
        why: "packages that NuGet has already downloaded",
    },
    Cache {
        path: ".cache/deno",
        programs: &["deno"],
        why: "modules that Deno has already downloaded",
    },
    Cache {
        path: ".hex/packages",
        programs: &["mix"],
        why: "packages that Hex has already downloaded",
    },
];

/// A variable of the caller that says where a tool is, or which one to take.
#[derive(Debug)]
pub(crate) enum Variable {
    /// A directory, which is granted.
    Dir {
        /// The variable's name.
        name: &'static str,
    },
    /// A choice, for example a version.
    Choice {
        /// The variable's name.
        name: &'static str,
    },
}

const fn dir(name: &'static str) -> Variable {
    Variable::Dir { name }
}

const fn choice(name: &'static str) -> Variable {
    Variable::Choice { name }
}

/// The variables. None of them carries a credential.
pub(crate) const VARIABLES: &[Variable] = &[
    dir("RUSTUP_HOME"),
    dir("CARGO_HOME"),
    choice("RUSTUP_TOOLCHAIN"),
    dir("GOROOT"),
    dir("GOPATH"),
    dir("GOMODCACHE"),
    choice("GOTOOLCHAIN"),
    dir("NVM_DIR"),
    dir("VOLTA_HOME"),
    dir("FNM_DIR"),
    dir("NODENV_ROOT"),
    choice("NODENV_VERSION"),
    dir("PNPM_HOME"),
    dir("BUN_INSTALL"),
    dir("DENO_INSTALL"),
    dir("PYENV_ROOT"),
    choice("PYENV_VERSION"),
    dir("VIRTUAL_ENV"),
    dir("CONDA_PREFIX"),
    choice("CONDA_DEFAULT_ENV"),
    dir("UV_PYTHON_INSTALL_DIR"),
    dir("RBENV_ROOT"),
    choice("RBENV_VERSION"),
    dir("JAVA_HOME"),
    dir("SDKMAN_DIR"),
    dir("JULIAUP_DEPOT_PATH"),
    dir("GHCUP_INSTALL_BASE_PREFIX"),
    dir("DOTNET_ROOT"),
    dir("ASDF_DIR"),
    dir("ASDF_DATA_DIR"),
    dir("MISE_DATA_DIR"),
    dir("HOMEBREW_PREFIX"),
    dir("ANDROID_HOME"),
    dir("FLUTTER_ROOT"),
];
