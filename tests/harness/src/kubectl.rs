//! Runs kubectl, so that a test sees what a user sees, warnings included. Reads of single objects and lists, and creations, use
//! the API directly.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use tokio::runtime::Runtime;

use crate::api_server::ApiServer;
use crate::checkout::xtask;
use crate::prelude::*;
use crate::process::on_loopback;
use crate::wait::TIMEOUT;

/// kubectl with cluster administrator rights, in one namespace.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    options: Vec<String>,
    /// If `None`, kubectl uses its default namespace.
    namespace: Option<String>,
    api_server: Arc<ApiServer>,
}

#[derive(Debug)]
pub struct Said {
    /// Whether the exit code was 0.
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Kubectl {
    pub(crate) fn new(runtime: &Runtime, binaries: &Path, kubeconfig: &Path, cache: &Path) -> Result<Self> {
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        Ok(Self {
            program: binaries.join("kubectl"),
            options: vec![option("kubeconfig", kubeconfig), option("cache-dir", cache)],
            namespace: None,
            api_server: Arc::new(ApiServer::new(runtime.handle().clone(), kubeconfig)?),
        })
    }

    /// The minor version of the API server.
    pub fn minor(&self) -> Result<u32> {
        let said = self.run(&["version", "-o", "json"], "")?;
        let version: Value = serde_json::from_str(&said.stdout)?;
        let minor = version["serverVersion"]["minor"].as_str().context("no version")?;
        Ok(minor.trim_end_matches('+').parse()?)
    }

    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self.clone()
        }
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// Runs kubectl with `stdin` and returns its result, successful or not.
    pub fn attempt(&self, args: &[&str], stdin: &str) -> Result<Said> {
        let mut child = on_loopback(&mut Command::new(&self.program))
            .args(args)
            .args(&self.options)
            .args(self.namespace.iter().map(|name| format!("--namespace={name}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        // The input fits the pipe. Dropping the handle at the end of the statement closes it.
        child
            .stdin
            .take()
            .context("kubectl's stdin is a pipe")?
            .write_all(stdin.as_bytes())?;
        Said::of(child.wait_with_output()?)
    }

    pub fn run(&self, args: &[&str], stdin: &str) -> Result<Said> {
        let said = self.attempt(args, stdin)?;
        if !said.succeeded {
            bail!("kubectl {}: {}", args.join(" "), said.stderr.trim_end());
        }
        Ok(said)
    }

    pub fn patch_status(&self, kind: &str, name: &str, status: &Value) -> Result<()> {
        let patch = json!({ "status": status });
        self.patch(kind, name, &patch, &["--subresource=status"])
    }

    /// Changes an object by a list of operations or by a merge patch. The last type among the options counts.
    pub fn patch(&self, kind: &str, name: &str, patch: &Value, options: &[&str]) -> Result<()> {
        let by = if patch.is_array() {
            "--type=json"
        } else {
            "--type=merge"
        };
        let args = ["patch", kind, name, "-p", &patch.to_string(), by];
        self.run(&[&args[..], options].concat(), "").map(drop)
    }

    /// Runs a script from the documentation in a shell. Its kubectl has the rights of this kubeconfig. Returns its output.
    pub fn shell(&self, script: &str, kubeconfig: &Path, dir: &Path) -> Result<String> {
        let output = self.in_shell(script, kubeconfig, dir).output()?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The shell command that [`Self::shell`] runs.
    pub fn in_shell(&self, script: &str, kubeconfig: &Path, dir: &Path) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = self.program.parent().unwrap_or(Path::new("")).as_os_str().to_owned();
        programs.push(":");
        programs.push(path);
        let mut shell = Command::new("sh");
        on_loopback(&mut shell)
            .args(["-euc", script])
            .env("PATH", programs)
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", dir)
            .current_dir(dir)
            .stdin(Stdio::null());
        shell
    }

    pub fn render(&self, folder: &Path) -> Result<Vec<Value>> {
        let rendered = self.run(&["kustomize", &folder.display().to_string()], "")?.stdout;
        Ok(serde_saphyr::from_multiple(&rendered)?)
    }

    /// Creates or changes the object, as `kubectl apply` does.
    pub fn apply(&self, object: &Value) -> Result<Said> {
        self.run(&["apply", "-f", "-"], &object.to_string())
    }

    /// Waits until custom resource definitions are served. They are given by name, or as `-f` and a folder. `kubectl wait`
    /// fails on a definition without a status, so this retries.
    pub fn wait_until_established(&self, definitions: &[&str]) -> Result<()> {
        let args = [&["wait", "--for=condition=Established", TIMEOUT], definitions].concat();
        eventually("the definitions are served", BOUND, || self.run(&args, "")).map(drop)
    }

    /// Creates the definition of another project's resource, from this file of `cargo xtask definitions`.
    pub fn define(&self, file: &str, name: &str) -> Result<()> {
        let definitions = xtask("definitions")?.context("there is no Go to get definitions with")?;
        let file = definitions.join(file).display().to_string();
        self.run(&["apply", "--server-side", "--filename", &file], "")?;
        self.wait_until_established(&[&format!("crd/{name}")])
    }

    /// Creates the object and returns it as stored. Unlike `apply`, this adds no kubectl annotation.
    pub fn create(&self, object: &Value) -> Result<Value> {
        self.api_server.create(self.namespace(), object, false)
    }

    /// The object that would be stored. Runs all of admission and stores nothing.
    pub fn dry_run(&self, object: &Value) -> Result<Value> {
        self.api_server.create(self.namespace(), object, true)
    }

    pub fn get(&self, kind: &str, name: &str) -> Result<Value> {
        self.api_server.get(self.namespace(), kind, name)
    }

    /// Objects of this kind with these labels; all objects if `selector` is empty.
    pub fn list(&self, kind: &str, selector: &str) -> Result<Vec<Value>> {
        self.api_server.list(self.namespace(), kind, selector)
    }
}

impl Said {
    pub(crate) fn of(output: Output) -> Result<Self> {
        Ok(Self {
            succeeded: output.status.success(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    pub fn warnings(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter_map(|line| line.strip_prefix("Warning: "))
            .collect()
    }
}
