//! The section `moves`: when running pods are moved to a better site.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::document::{DAY, Decimal, SECOND, Span};
use edgeward_kube::units::Micros;

/// When running pods are moved to a better site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Moves {
    /// Whether pods are moved. Needs the rights of `deploy/moves`
    pub enabled: bool,
    /// Whether pods come from a cloud to the edge when the edge has room
    pub home: bool,
    /// Whether pods go where their [performance profile](../guide/clouds.md#profiles) prefers another good site by its margin
    pub profiles: bool,
    /// How long the target must have been better without a break
    #[schemars(with = "Span<SECOND, DAY>")]
    pub dwell: Micros,
    /// How much of the edge's allocatable resources stays free after a move
    pub keep_free: Percent,
    /// Moves per minute, of all owners together
    #[schemars(with = "Decimal<0, 1, 60>")]
    pub per_minute: u32,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            enabled: false,
            home: true,
            profiles: true,
            dwell: Micros::from_secs(600),
            keep_free: Percent(10),
            per_minute: 2,
        }
    }
}

/// A whole number of percent, written as `10%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(pub u8);

impl From<Percent> for String {
    fn from(Percent(percent): Percent) -> Self {
        format!("{percent}%")
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent.filter(|percent| *percent <= 100).map(Self).ok_or(text)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a whole percentage from 0% to 100%, such as 10%",
            "type": "string",
            "pattern": "^([0-9]|[1-9][0-9]|100)%$",
        })
    }
}
