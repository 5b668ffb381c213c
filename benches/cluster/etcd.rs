//! etcd behind the API server, through its JSON gateway. A change made here costs the API server only the watch event.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::prelude::*;
use reqwest::header::CONTENT_TYPE;

pub(crate) struct Etcd {
    client: reqwest::Client,
    url: String,
}

impl Etcd {
    pub(crate) fn at(url: &str) -> Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder().no_proxy().timeout(BOUND).build()?,
            url: url.to_owned(),
        })
    }

    /// Returns the value of a key, in base64.
    pub(crate) async fn get(&self, key: &str) -> Result<String> {
        let found = self.call("range", &json!({"key": STANDARD.encode(key)})).await?;
        let value = found["kvs"][0]["value"].as_str();
        Ok(value.with_context(|| format!("{key}: {found}"))?.to_owned())
    }

    /// Sets a key to this value, which is in base64.
    pub(crate) async fn put(&self, key: &str, value: &str) -> Result<()> {
        self.call("put", &json!({"key": STANDARD.encode(key), "value": value}))
            .await?;
        Ok(())
    }

    async fn call(&self, what: &str, body: &Value) -> Result<Value> {
        let request = self.client.post(format!("{}/v3/kv/{what}", self.url));
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        let answer = request.send().await?.error_for_status()?.text().await?;
        Ok(answer.parse()?)
    }
}
