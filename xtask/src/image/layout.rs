//! An OCI layout: blobs by digest, the manifests among them, and the archive of all.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr as _;

use anyhow::Result;
use oci_spec::image::{
    Config, Descriptor, ImageConfigurationBuilder, ImageIndexBuilder, ImageManifestBuilder, MediaType,
    OciLayoutBuilder, Os, PlatformBuilder, RootFsBuilder, Sha256Digest,
};
use serde_json::{Value, json};

use crate::archive::{Entry, gzip, sha256, tar};

pub(super) type Annotations = HashMap<String, String>;

pub(super) fn annotations<K: ToString, V: ToString>(pairs: &[(K, V)]) -> Annotations {
    let pairs = pairs.iter();
    pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Blobs by their SHA-256.
#[derive(Default)]
pub(super) struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    fn add(&mut self, media_type: MediaType, bytes: Vec<u8>) -> Result<Descriptor> {
        let digest = sha256(&bytes);
        let descriptor = Descriptor::new(media_type, bytes.len() as u64, Sha256Digest::from_str(&digest)?);
        self.0.insert(digest, bytes);
        Ok(descriptor)
    }

    fn add_json(&mut self, media_type: MediaType, json: &str) -> Result<Descriptor> {
        self.add(media_type, sorted(json)?)
    }

    /// Adds an image for Linux, of one layer with these files.
    pub(super) fn add_image(&mut self, arch: &str, files: &[Entry], config: Config) -> Result<Descriptor> {
        let layer = tar(files)?;
        let content = format!("sha256:{}", sha256(&layer));
        let layer = self.add(MediaType::ImageLayerGzip, gzip(&layer)?)?;
        self.add_manifest(Os::Linux, arch, config, layer, content)
    }

    /// Adds an attestation of the image in the form of BuildKit, which registries and container engines know.
    pub(super) fn add_bill_of_materials(&mut self, image: &Descriptor, sbom: &str) -> Result<Descriptor> {
        const CYCLONEDX: &str = "https://cyclonedx.org/bom";
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v0.1",
            "subject": [{"name": "edgeward", "digest": {"sha256": image.digest().digest()}}],
            "predicateType": CYCLONEDX,
            "predicate": serde_json::from_str::<Value>(sbom)?,
        });
        let media_type = MediaType::Other("application/vnd.in-toto+json".to_owned());
        let mut layer = self.add_json(media_type, &statement.to_string())?;
        layer.set_annotations(Some(annotations(&[("in-toto.io/predicate-type", CYCLONEDX)])));
        let (unknown, content) = ("unknown", layer.digest().to_string());
        let mut manifest = self.add_manifest(
            Os::Other(unknown.to_owned()),
            unknown,
            Config::default(),
            layer,
            content,
        )?;
        manifest.set_annotations(Some(annotations(&[
            ("vnd.docker.reference.type", "attestation-manifest"),
            ("vnd.docker.reference.digest", image.digest().as_ref()),
        ])));
        Ok(manifest)
    }

    /// `content` is the digest of the layer before compression.
    fn add_manifest(
        &mut self,
        os: Os,
        arch: &str,
        config: Config,
        layer: Descriptor,
        content: String,
    ) -> Result<Descriptor> {
        let labels = config.labels().clone().unwrap_or_default();
        let config = ImageConfigurationBuilder::default()
            .created("1970-01-01T00:00:00Z")
            .os(os.clone())
            .architecture(arch)
            .config(config)
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids([content]).build()?)
            .build()?;
        let config = self.add_json(MediaType::ImageConfig, &config.to_string()?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers([layer])
            .annotations(labels)
            .build()?;
        let mut manifest = self.add_json(MediaType::ImageManifest, &manifest.to_string()?)?;
        let platform = PlatformBuilder::default().os(os).architecture(arch).build()?;
        manifest.set_platform(Some(platform));
        Ok(manifest)
    }

    pub(super) fn add_index(&mut self, manifests: Vec<Descriptor>, annotations: Annotations) -> Result<Descriptor> {
        let index = ImageIndexBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageIndex)
            .manifests(manifests)
            .annotations(annotations)
            .build()?;
        self.add_json(MediaType::ImageIndex, &index.to_string()?)
    }

    /// The layout as an archive, with `root` as its only entry point.
    pub(super) fn archive(mut self, root: Descriptor) -> Result<Vec<u8>> {
        let marker = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
        let index = self.add_index(vec![root], HashMap::new())?;
        let index = self.0.remove(index.digest().digest()).unwrap_or_default();
        let mut entries = vec![
            Entry::file("oci-layout", marker.to_string()?),
            Entry::file("index.json", index),
        ];
        let blobs = self.0.into_iter();
        entries.extend(blobs.map(|(digest, bytes)| Entry::file(&format!("blobs/sha256/{digest}"), bytes)));
        tar(&entries)
    }
}

/// Sorts the keys. The types of `oci-spec` have hash maps, whose order differs from run to run.
fn sorted(json: &str) -> Result<Vec<u8>> {
    let mut value: Value = serde_json::from_str(json)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}
