//! Dry-run creation of a pod: the API server answers and stores nothing.

use anyhow::{Context as _, bail};
use http::HeaderValue;
use http::header::WARNING;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::PostParams;
use kube::client::Body;
use kube::core::{Request, Status};
use serde_json::Value;

use crate::inspect::Connection;

/// The API server's answer to the creation of a pod.
#[derive(Debug)]
pub struct Answer {
    /// The pod as it would be stored, or the refusal.
    pub outcome: Result<Value, Status>,
    /// The warnings in the answer, as kubectl shows them.
    pub warnings: Vec<String>,
}

impl Connection {
    /// Creates a pod as a dry run. The request passes all of admission, and nothing is stored.
    ///
    /// # Errors
    /// The API server cannot be reached, does not let us create pods, or fails.
    pub async fn dry_run(&self, namespace: &str, pod: &Value) -> anyhow::Result<Answer> {
        const DOING: &str = "cannot create a pod as a dry run";
        if !namespace.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            bail!("{namespace:?} is not the name of a namespace");
        }
        let params = PostParams {
            dry_run: true,
            field_manager: Some("edgeward".to_owned()),
        };
        let pods = Request::new(Pod::url_path(&(), Some(namespace)));
        let request = pods.create(&params, pod.to_string().into_bytes())?.map(Body::from);
        let failure = |error| self.failure(DOING, error);
        let response = self.client.send(request).await.map_err(failure)?;
        let (head, body) = response.into_parts();
        let body = body.collect_bytes().await.map_err(failure)?;
        let object: Value = serde_json::from_slice(&body)
            .with_context(|| format!("{}: {DOING}: {} without a JSON object", self.name, head.status))?;
        let warnings = head.headers.get_all(WARNING).iter().filter_map(warning).collect();
        if head.status.is_success() {
            let outcome = Ok(object);
            return Ok(Answer { outcome, warnings });
        }
        let refusal: Status = serde_json::from_value(object).with_context(|| format!("{}: {DOING}", self.name))?;
        let may_not = refusal.message.starts_with("pods is forbidden: User ");
        if may_not || !head.status.is_client_error() || head.status == http::StatusCode::UNAUTHORIZED {
            bail!("{}: {DOING}: {} {}", self.name, head.status.as_u16(), refusal.message);
        }
        let outcome = Err(refusal);
        Ok(Answer { outcome, warnings })
    }
}

/// Extracts the text of a warning from `299 - "text"`. Quotes and backslashes in the text are escaped with a
/// backslash.
fn warning(header: &HeaderValue) -> Option<String> {
    let header = String::from_utf8_lossy(header.as_bytes());
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_header_text_is_unquoted() {
        let text = |header: &'static str| warning(&HeaderValue::from_static(header));
        assert_eq!(text(r#"299 - "not placed""#).as_deref(), Some("not placed"));
        assert_eq!(
            text(r#"299 - "\"fast\" is \\ no class" "#).as_deref(),
            Some(r#""fast" is \ no class"#)
        );
        assert_eq!(text(r#"299 - "cut of"#), None);
        assert_eq!(text("299"), None);
    }
}
