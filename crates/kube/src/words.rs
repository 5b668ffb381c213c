//! Enums whose values each have a word.

/// Declares an enum whose values are written as words in annotations, files, metrics and logs. `ALL` lists them in
/// order.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$value_meta:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[$value_meta])* #[serde(rename = $word)] $value,)*
        }

        impl $crate::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::schemars::json_schema!({"type": "string", "enum": Self::WORDS[..]})
            }
        }

        impl $name {
            /// Every value, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Every word, in order.
            pub const WORDS: [&'static str; [$($word),*].len()] = [$($word),*];

            /// Returns the value of this word.
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }

            /// Returns the word of this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}
