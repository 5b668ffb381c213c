//! Reads the output of test programs line by line: libtest, and this repository's programs based on libtest-mimic.

#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestOutput {
    /// Failed tests, and tests that the machine was too busy for, with their figures.
    pub(crate) notes: Vec<String>,
    /// The numbers of passed, failed and ignored tests as text, one entry for each test run.
    pub(crate) counts: Vec<String>,
    is_list_of_failures: bool,
}

impl TestOutput {
    pub(crate) fn has_no_test(&self) -> bool {
        self.counts.iter().all(|counts| counts.contains(" 0 passed; 0 failed"))
    }

    pub(crate) fn read(&mut self, line: &str) {
        if let Some((_, test)) = line.split_once("too busy to tell: ") {
            self.notes.push(format!("too busy to tell: {test}"));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.counts
                .push(result.split("; 0 measured").next().unwrap_or(result).to_owned());
        }
        // The list of failed names follows its heading directly. Output of the tests comes after an empty line.
        let name = line.strip_prefix("    ").filter(|_| self.is_list_of_failures);
        self.is_list_of_failures = line == "failures:" || name.is_some();
        self.notes.extend(name.map(|name| format!("FAILED {name}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_run_names_failed_and_too_busy_tests() {
        let mut output = TestOutput::default();
        let text = "too busy to tell: burst::fills: 3.2 s late\n\nfailures:\n\n---- a::one stdout ----\n    left: 1\n\n\
                    failures:\n    a::one\n\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 84.00s\n";
        text.lines().for_each(|line| output.read(line));
        assert_eq!(
            output.notes,
            ["too busy to tell: burst::fills: 3.2 s late", "FAILED a::one"]
        );
        assert_eq!(output.counts, ["FAILED. 2 passed; 1 failed; 0 ignored"]);
        assert!(!output.has_no_test());
    }
}
