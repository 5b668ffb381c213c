//! What test programs say of their tests, line by line: libtest with `--report-time`, and our own that use libtest-mimic.

/// Seconds from which on a test's time is listed. `tests/harness/src/timing.rs` has the same.
pub(crate) const LONG: f64 = 10.0;
/// How much is repeated of what a test said that failed: lines, and characters of each.
const WORDS: (usize, usize) = (3, 400);

/// What is worth repeating at the end of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestOutput {
    /// Tests that took [`LONG`] or longer, with their seconds.
    pub(crate) long: Vec<(f64, String)>,
    /// Tests that can say neither yes nor no, each with its figures.
    pub(crate) too_busy: Vec<String>,
    /// Tests that failed, each with the first of its words.
    pub(crate) failed: Vec<String>,
    /// How many passed, failed and were ignored, in words.
    pub(crate) counts: Vec<String>,
    is_list_of_failures: bool,
    /// Of the tests that failed, the first lines that each said; the last is whose words are being read.
    said: Vec<(String, Vec<String>)>,
}

impl TestOutput {
    /// Whether every program that ended had nothing to run.
    pub(crate) fn has_no_test(&self) -> bool {
        self.counts
            .iter()
            .all(|counts| counts.ends_with(" 0 passed; 0 failed; 0 ignored"))
    }

    pub(crate) fn read(&mut self, line: &str) {
        if let Some((seconds, name)) = time(line).or_else(|| libtest_time(line)) {
            if seconds >= LONG {
                self.long.push((seconds, name.to_owned()));
            }
        } else if let Some((_, test)) = line.split_once("too busy to tell: ") {
            self.too_busy.push(test.trim_end().to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            // Of "ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s".
            let counts = result.split("; 0 measured").next().unwrap_or(result);
            self.counts.push(counts.to_owned());
        }
        // Each harness ends with the names of those that failed, after what they said under the same heading.
        let name = line.strip_prefix("    ").filter(|_| self.is_list_of_failures);
        self.is_list_of_failures = line == "failures:" || name.is_some();
        if let Some(name) = name {
            let said = self.said.iter().find(|(test, _)| test == name);
            let said = said.map_or(String::new(), |(_, said)| format!(": {}", said.join(" | ")));
            self.failed.push(format!("{name}{said}"));
        } else {
            self.hear(line);
        }
    }

    /// Keeps the first lines below `---- TEST ----`, or `---- TEST stdout ----`.
    fn hear(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let test = test.strip_suffix(" stdout").unwrap_or(test);
            self.said.push((test.to_owned(), vec![]));
        } else if let Some((_, said)) = self.said.last_mut()
            && said.len() < WORDS.0
            && !line.trim().is_empty()
            && line != "failures:"
        {
            said.push(line.trim().chars().take(WORDS.1).collect());
        }
    }
}

/// Of `time: placement::good_wan 12.3 s`. Something else may be before it: a harness writes a test's line piece by piece.
fn time(line: &str) -> Option<(f64, &str)> {
    let (_, timed) = line.split_once("time: ")?;
    let (name, seconds) = timed.trim_end().strip_suffix(" s")?.rsplit_once(' ')?;
    Some((seconds.parse().ok()?, name))
}

/// Of `test decide::tests::is_total ... ok <12.345s>`.
fn libtest_time(line: &str) -> Option<(f64, &str)> {
    let (name, ended) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (_, seconds) = ended.split_once('<')?;
    let seconds = seconds.trim_end().strip_suffix("s>")?;
    Some((seconds.parse().ok()?, name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TestOutput {
        let mut output = TestOutput::default();
        text.lines().for_each(|line| output.read(line));
        output
    }

    #[test]
    fn libtest_names_the_time_of_each_and_the_long_ones_count() {
        let output = read(
            "running 4 tests\n\
             test decide::tests::is_total ... ok <12.345s>\n\
             test decide::tests::is_fast ... ok <9.999s>\n\
             test wan::tests::panics - should panic ... ok <10.000s>\n\
             test wan::tests::fails ... FAILED <61.200s>\n\
             test wan::tests::fails has been running for over 60 seconds\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 84.00s\n",
        );
        let long = [
            (12.345, "decide::tests::is_total"),
            (10.0, "wan::tests::panics - should panic"),
            (61.2, "wan::tests::fails"),
        ];
        assert_eq!(output.long, long.map(|(seconds, name)| (seconds, name.to_owned())));
        assert_eq!(output.counts, ["FAILED. 3 passed; 1 failed; 0 ignored"]);
    }

    #[test]
    fn our_own_harness_names_the_long_ones_even_in_the_middle_of_another_line() {
        let output = read(
            "time: placement::good_wan 12.3 s\n\
             test held::in_queue_order         ... time: live::quiet 100.0 s\n\
             ok\n\
             test it::takes_no_time: at all ... ok\n\
             last time: it was 12 s ago\n",
        );
        let long = [(12.3, "placement::good_wan"), (100.0, "live::quiet")];
        assert_eq!(output.long, long.map(|(seconds, name)| (seconds, name.to_owned())));
    }

    #[test]
    fn who_was_too_busy_is_kept_with_the_figures() {
        let output = read(
            "too busy to tell: load::rolling: 17 % idle, 40 % needed\n\
             test x ... too busy to tell: burst::fills: 3.2 s late\n\
             test load::rolling ... ok\n",
        );
        let expected = ["load::rolling: 17 % idle, 40 % needed", "burst::fills: 3.2 s late"];
        assert_eq!(output.too_busy, expected);
        assert_eq!(output.failed, [""; 0]);
    }

    #[test]
    fn who_failed_is_read_from_the_list_at_the_end_with_the_first_of_what_they_said() {
        let output = read(
            "test a::one ... FAILED <0.1s>\n\
             \n\
             failures:\n\
             \n\
             ---- a::one stdout ----\n\
             \n\
             \x20   left: 1\n\
             failures: 3 of them\n\
             a third line\n\
             and a fourth\n\
             ---- a::two ----\n\
             last seen: 3 of 4\n\
             \n\
             failures:\n\
             \x20   a::one\n\
             \x20   a::two\n\
             \x20   src/lib.rs - (line 43)\n\
             \n\
             test result: FAILED. 0 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
             \x20   not one of them\n",
        );
        let expected = [
            "a::one: left: 1 | failures: 3 of them | a third line",
            "a::two: last seen: 3 of 4",
            "src/lib.rs - (line 43)",
        ];
        assert_eq!(output.failed, expected);
    }
}
