//! A browser and one tab of it, by the DevTools protocol over pipes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Tab {
    child: Child,
    profile: PathBuf,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// What the browser has told of: requests, what is written to the console, exceptions.
    pub(crate) events: Vec<Value>,
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tab {
    /// Starts a browser whose profile is in this folder.
    pub(crate) fn open(program: &Path, profile: &Path) -> Self {
        // It reads commands on file descriptor 3 and writes messages to 4, each with a NUL behind it.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            let messages = output.split(0).map_while(Result::ok);
            let mut messages = messages.map(|message| serde_json::from_slice(&message).unwrap());
            messages.try_for_each(|message| sender.send(message))
        });
        let mut tab = Self {
            child,
            profile: profile.to_owned(),
            commands,
            messages,
            session: None,
            sent: 0,
            events: vec![],
        };
        let target = tab.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = tab.call("Target.attachToTarget", target);
        tab.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab
    }

    /// Ends the browser and removes its profile, which processes that it started may still write when it is gone.
    pub(crate) fn close(mut self) {
        self.session = None;
        self.call("Browser.close", json!({}));
        self.child.wait().unwrap();
        let started = Instant::now();
        while let Err(error) = fs::remove_dir_all(&self.profile) {
            assert!(started.elapsed() < BOUND, "{error}");
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut command = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = self
                .messages
                .recv_timeout(BOUND)
                .unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.sent {
                assert_eq!(message.get("error"), None, "{method}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    pub(crate) fn told(&self, method: &str) -> Vec<&Value> {
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.map(|event| &event["params"]).collect()
    }

    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert_eq!(result.get("exceptionDetails"), None, "{expression}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression in the page has this value.
    pub(crate) fn eventually(&mut self, expression: &str, expected: &Value) {
        let started = Instant::now();
        loop {
            let found = self.value(expression);
            if found == *expected {
                return;
            }
            assert!(started.elapsed() < BOUND, "{expression}: {found}, not {expected}");
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn navigate(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.eventually("[location.href, document.readyState]", &json!([url, "complete"]));
    }

    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let params = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// The size of the window, and what its user prefers.
    pub(crate) fn emulate(&mut self, width: u32, scheme: &str) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let mut clip = size;
        clip["scale"] = 1.into();
        let mut params = params;
        params["clip"] = clip;
        let shot = self.call("Page.captureScreenshot", params);
        from_base64(shot["data"].as_str().unwrap())
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, vec![]);
    for digit in text
        .bytes()
        .filter_map(|byte| ALPHABET.iter().position(|known| *known == byte))
    {
        bits = (bits << 6 | digit as u32) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
