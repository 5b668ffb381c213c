//! edgeward as installed, with local processes instead of its pods.

use crate::mount::Mount;
use crate::prelude::*;
use crate::registration::ENTRIES;
use crate::wait::TIMEOUT;

pub const SECRET: &str = "edgeward-tls";

pub const WEBHOOK: &str = "zz-edgeward";

/// A local process that replaces one of the Deployment's pods.
pub struct Replica<'run> {
    pub edgeward: Edgeward<'run>,
    pub mount: Option<Mount>,
}

pub struct Installation<'s, 'run> {
    pub fixture: &'s Fixture<'run>,
    pub domain: &'s str,
    pub objects: Vec<Value>,
}

impl<'s, 'run> Installation<'s, 'run> {
    /// Applies rendered objects, which include edgeward's rights.
    pub(crate) fn apply_objects(fixture: &'s Fixture<'run>, objects: Vec<Value>) -> Result<Self> {
        let installation = Self {
            fixture,
            domain: "example.io",
            objects,
        };
        let kubectl = fixture.kubectl_in(NAMESPACE);
        kubectl.run(&["apply", "-f", "-"], &installation.list())?;
        fixture.sign_in()?;
        Ok(installation)
    }

    fn list(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects}).to_string()
    }

    pub fn object(&self, kind: &str) -> Result<&Value> {
        let mut objects = self.objects.iter();
        objects.find(|object| object["kind"] == kind).context(kind.to_owned())
    }

    /// Starts a replica in this directory. It has the Deployment's arguments, the mounted Secret, and the arguments in `more`.
    pub fn replica(&self, dir: &Path, more: &[&str]) -> Result<Replica<'run>> {
        self.replica_of(self.fixture.program, dir, more)
    }

    pub fn replica_of<'p>(&self, program: &'p Path, dir: &Path, more: &[&str]) -> Result<Replica<'p>>
    where
        'run: 'p,
    {
        let container = &self.object("Deployment")?["spec"]["template"]["spec"]["containers"][0];
        let tls = dir.join("tls");
        fs::create_dir(dir)?;
        let path = container["volumeMounts"][0]["mountPath"].as_str();
        let mount = match path {
            Some(_) => Some(Mount::open(self.fixture, NAMESPACE, SECRET, &tls)?),
            None => {
                fs::create_dir(&tls)?;
                // Only the API server calls this replica, so the test needs no valid CA here.
                fs::write(tls.join("ca.crt"), Authority::new()?.certificate)?;
                None
            }
        };
        let here = |arg: &str| match path {
            Some(path) => arg.replace(path, &tls.display().to_string()),
            None => arg.to_owned(),
        };
        let args = container["args"].as_array().context("arguments")?.iter();
        let mut args = args.map(|arg| arg.as_str().map(here));
        ensure!(args.next().flatten().as_deref() == Some("serve"), "{container}");
        let args = args.chain(more.iter().map(|arg| Some(arg.to_string())));
        let args: Result<_> = args.map(|arg| arg.context("an argument is no string")).collect();
        let kubeconfig = self.fixture.edgeward_kubeconfig();
        let edgeward = self.fixture.edgeward_of_arguments(kubeconfig, program, dir, args?)?;
        Ok(Replica { edgeward, mount })
    }

    /// Makes the Service lead to a local port. No kubelet runs the pods here, and nothing routes to a Service. The API server
    /// still expects the Service's certificate, from the CA that the manifests have brought it.
    pub fn lead_to(&self, port: u16) -> Result<()> {
        let spec = json!({"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null});
        let kubectl = self.fixture.kubectl_in(NAMESPACE);
        kubectl.patch("service", "edgeward", &json!({"spec": spec}), &[])?;
        let replace = |entry| {
            let path = format!("/webhooks/{entry}/clientConfig/service/port");
            json!({"op": "replace", "path": path, "value": port})
        };
        self.patch_webhook(ENTRIES.map(replace).collect())
    }

    pub(crate) fn patch_webhook(&self, patch: Value) -> Result<()> {
        let kubectl = &self.fixture.kubectl;
        kubectl.patch("mutatingwebhookconfiguration", WEBHOOK, &patch, &[])
    }

    /// Sets the longest possible webhook timeout, so that a busy machine does not matter.
    pub fn set_long_timeout(&self) -> Result<()> {
        let replace =
            |entry| json!({"op": "replace", "path": format!("/webhooks/{entry}/timeoutSeconds"), "value": 30});
        self.patch_webhook(ENTRIES.map(replace).collect())
    }
}

impl Drop for Installation<'_, '_> {
    fn drop(&mut self) {
        let args = ["delete", "--ignore-not-found", TIMEOUT, "-f", "-"];
        if let Err(error) = self.fixture.kubectl_in(NAMESPACE).run(&args, &self.list()) {
            eprintln!("{error:#}");
        }
    }
}
