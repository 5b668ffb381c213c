//! Items for a glob import, used by nearly every test and most of this crate.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fs;
pub use std::path::{Path, PathBuf};
pub use std::sync::Arc;
pub use std::time::{Duration, Instant};

pub use anyhow::{Context as _, Result, bail, ensure};
pub use serde_json::{Value, json};

pub use crate::checkout::workspace;
pub use crate::decision::{annotation, is_gated, is_unschedulable};
pub use crate::edgeward::Edgeward;
pub use crate::fixture::{Fixture, MANAGED};
pub use crate::kubectl::{Kubectl, Said};
pub use crate::live::{is_now, outcome};
pub use crate::nodes::{Nodes, for_long};
pub use crate::pki::Authority;
pub use crate::process::Process;
pub use crate::rights::NAMESPACE;
pub use crate::wait::{BOUND, eventually};
pub use crate::workloads;
