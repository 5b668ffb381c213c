//! edgeward as it is installed, with processes of this machine in the place of its pods.

use crate::mount::Mount;
use crate::prelude::*;
use crate::registration::ENTRIES;
use crate::wait::TIMEOUT;

pub const SECRET: &str = "edgeward-tls";

pub const WEBHOOK: &str = "zz-edgeward";

/// A process of this machine in the place of one of the Deployment's pods.
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
    /// Objects that are rendered already, with edgeward's rights among them.
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

    /// One in this directory, with the arguments of the Deployment's container, the Secret that it mounts, and more arguments.
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
                // Nobody asks it past the API server.
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
        let edgeward = self.fixture.edgeward_of_arguments(program, dir, args?)?;
        Ok(Replica { edgeward, mount })
    }

    /// No kubelet runs the pods here, and nothing routes to a Service. So the Service leads to a port of this machine; the
    /// API server still asks for the certificate of the Service, of the CA that the manifests have brought it.
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

    /// The API server waits as long as it can, however busy the machine is.
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
