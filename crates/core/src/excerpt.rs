//! The beginning of a text that others write, as far as a message shows it.

use std::fmt::{self, Display, Write};

/// The longest name of an object that the API server keeps, and how much is shown of a text that may have megabytes.
pub const LONGEST_NAME: usize = 253;

/// The text as far as it has `bytes`, and `…` for what is left out. No more than that is ever made of it.
pub fn excerpt(text: impl Display, bytes: usize) -> String {
    let mut excerpt = Excerpt {
        text: String::new(),
        bytes,
    };
    if write!(excerpt, "{text}").is_err() {
        excerpt.text.push('…');
    }
    excerpt.text
}

struct Excerpt {
    text: String,
    bytes: usize,
}

impl Write for Excerpt {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let shown = text.floor_char_boundary(self.bytes - self.text.len());
        self.text.push_str(&text[..shown]);
        if shown < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        for (text, bytes, expected) in [
            ("", 0, ""),
            ("whole", 5, "whole"),
            ("whole", 4, "whol…"),
            ("ää", 3, "ä…"),
            ("ää", 4, "ää"),
        ] {
            assert_eq!(excerpt(text, bytes), expected);
        }
        assert_eq!(
            excerpt(format_args!("{:?} is {}", "a\u{7f}", "no name"), 12),
            r#""a\u{7f}" is…"#
        );
    }

    #[test]
    fn writing_ends_where_the_text_is_cut() {
        struct Endless;
        impl Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("endless ")?;
                }
            }
        }
        assert_eq!(excerpt(Endless, 12), "endless endl…");
    }
}
