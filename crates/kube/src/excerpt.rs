//! The start of a text that users write, cut for a message.

use std::fmt::{self, Display, Write};

/// Maximum length of an object's name in the API server, in bytes. Texts that may have megabytes are cut to this
/// length.
pub const LONGEST_NAME: usize = 253;

/// Returns the first `bytes` bytes of the text, with `…` if something is left out. The rest of the text is never built.
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
