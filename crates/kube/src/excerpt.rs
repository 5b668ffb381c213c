//! The start of a text that users write, cut for a message.

use std::fmt::Display;

/// Maximum length of an object's name in the API server, in bytes. Texts that may have megabytes are cut to this
/// length.
pub const LONGEST_NAME: usize = 253;

/// Returns the first `bytes` bytes of the text, with `…` if something is left out.
pub fn excerpt(text: impl Display, bytes: usize) -> String {
    let text = text.to_string();
    match text.len() > bytes {
        true => format!("{}…", &text[..text.floor_char_boundary(bytes)]),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters_with_ellipsis() {
        for (text, bytes, expected) in [
            ("", 0, ""),
            ("whole", 5, "whole"),
            ("whole", 4, "whol…"),
            ("ää", 3, "ä…"),
            ("ää", 4, "ää"),
        ] {
            assert_eq!(excerpt(text, bytes), expected);
        }
    }
}
